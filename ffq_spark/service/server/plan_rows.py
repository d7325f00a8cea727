"""Read the rows of a planned read's parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from ffq_spark.exchange.compute.hash_shards import HashShard
from ffq_spark.exchange.read.bounded import MemoryLimits
from ffq_spark.exchange.read.rows import read_rows
from ffq_spark.service.server.read_plans import Plan


def plan_rows(
    plan: Plan,
    parts: pa.Table,
    limits: MemoryLimits,
    skip: int = 0,
    shard: HashShard | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read the rows of a plan's parts, or of a shard, after the first `skip`, always in order."""
    batches = read_rows(
        plan.store,
        parts,
        plan.exchange,
        plan.options,
        plan.schema,
        equal=plan.predicates,
        shard=shard,
        limits=limits,
    )
    return _skip_rows(batches, skip)


def _skip_rows(batches: Iterable[pa.RecordBatch], skip: int) -> Iterator[pa.RecordBatch]:
    """Drop the first `skip` rows.

    >>> batches = [pa.record_batch({"a": [1, 2]}), pa.record_batch({"a": [3, 4]})]
    >>> [batch["a"].to_pylist() for batch in _skip_rows(batches, 3)]
    [[4]]
    """
    for batch in batches:
        left = max(0, batch.num_rows - skip)
        skip -= batch.num_rows - left
        if left:
            yield batch.slice(batch.num_rows - left)
