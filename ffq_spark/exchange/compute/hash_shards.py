"""Divide the rows of a partition among tasks, by bits of the keys' hash that did not place them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ffq_spark.errors import BadOption
from ffq_spark.exchange.compute.row_partitions import row_partitions
from ffq_spark.format.records import ExchangeRecord

MAX_SHARDS = 1 << 17
"""With the most partitions that an exchange may have, the places still have 31 bits."""


@dataclass(frozen=True)
class HashShard:
    """One of `count` shards of every partition; rows with equal keys are in the same shard.

    >>> exchange = ExchangeRecord.of(pa.schema([("k", pa.int64())]), ["k"], 1)
    >>> rows = pa.record_batch({"k": [1, 2, 3, 1]})
    >>> [HashShard(n, 2).rows(exchange, rows)["k"].to_pylist() for n in range(2)]
    [[2], [1, 3, 1]]
    """

    number: int
    count: int

    def __post_init__(self) -> None:
        if not 0 <= self.number < self.count <= MAX_SHARDS:
            limits = f"from 0 to {self.count - 1}, of at most {MAX_SHARDS} shards"
            raise BadOption(f"shard {self.number} must be a number {limits}", option="split")

    @property
    def is_last(self) -> bool:
        return self.number == self.count - 1

    def rows(self, exchange: ExchangeRecord, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch that are in this shard; the batch needs the key columns."""
        return batch.filter(pa.array(row_shards(exchange, batch, self.count) == self.number))

    def select(
        self, exchange: ExchangeRecord, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of batches that are in this shard, without empty batches."""
        for batch in batches:
            own = self.rows(exchange, batch)
            if own.num_rows:
                yield own


def row_shards(exchange: ExchangeRecord, batch: pa.RecordBatch, shards: int) -> NDArray[np.int32]:
    """Compute the shard of each row within its partition.

    With P partitions and n shards, pmod(hash, P*n) is the row's partition + P * its shard. FFQ
    takes the hash modulo n instead. If P is a multiple of n, that is equal for all rows of a
    partition, and all other shards are empty.
    """
    return row_partitions(exchange, batch, shards) // np.int32(exchange.partitions)


def check_divisible(exchange: ExchangeRecord) -> None:
    """Refuse to divide the rows of an exchange by a hash of its keys if it has no keys."""
    if not exchange.keys:
        message = "the exchange has no keys by which its rows could be divided"
        raise BadOption(f"{message}; read it with split=map or split=never", option="split")
