"""The records of a stream: its owners, its batches, and the offsets of their sources."""

from __future__ import annotations

from dataclasses import dataclass

from ffq_spark.format.records.json_record import JsonRecord


@dataclass(frozen=True)
class StreamBatch(JsonRecord):
    """The stream and the batch of a step, and the order-free digest of its rows.

    `epoch` is the epoch in which the batch was admitted, and under which it is recorded.
    """

    stream: str
    epoch: int
    batch: int
    rows: int
    hash_sum: int
    hash_xor: int


@dataclass(frozen=True)
class OwnerRecord(JsonRecord):
    """Gives a stream to one owner, for an epoch that begins with batch `first`."""

    stream: str
    epoch: int
    owner: str
    first: int
    at_ms: int


@dataclass(frozen=True)
class BatchRecord(JsonRecord):
    """Makes one query's output a stream's batch. The first process to create it decides.

    A seal is the record of no query: its epoch ends before this batch.
    """

    query: int
    rows: int
    hash_sum: int
    hash_xor: int

    @property
    def is_seal(self) -> bool:
        return self.query == _NO_QUERY


_NO_QUERY = -1
SEAL = BatchRecord(_NO_QUERY, rows=0, hash_sum=0, hash_xor=0)
"""The record that a takeover puts in the place of the next batch of the previous epoch."""


@dataclass(frozen=True)
class Offsets(JsonRecord):
    """The offsets of a batch's sources before and after it, in Spark's JSON."""

    start: tuple[str, ...]
    end: tuple[str, ...]
