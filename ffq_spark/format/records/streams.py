"""The records of a stream: its owners, its batches, and the offsets of their sources."""

from __future__ import annotations

from dataclasses import dataclass

from ffq_spark.format.records.json_record import JsonRecord


@dataclass(frozen=True)
class StreamBatch(JsonRecord):
    """The stream and the batch of a step, and the order-free digest of its rows.

    `epoch` is the first epoch of the batch's owner, under which all of its batches are recorded.
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
    """Makes one query's output a stream's batch. The first process to create it decides."""

    query: int
    rows: int
    hash_sum: int
    hash_xor: int


@dataclass(frozen=True)
class Offsets(JsonRecord):
    """The offsets of a batch's sources before and after it, in Spark's JSON."""

    start: tuple[str, ...]
    end: tuple[str, ...]
