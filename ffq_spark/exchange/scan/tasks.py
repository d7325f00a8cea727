"""Divide a snapshot's parts into read tasks."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ffq_spark.exchange.compute.hash_shards import MAX_SHARDS, HashShard
from ffq_spark.exchange.compute.planner import TaskParts, plan
from ffq_spark.options import ReadOptions


@dataclass(frozen=True)
class PlannedTask:
    """One task of a read that is planned by size."""

    planned: TaskParts
    parts: pa.RecordBatch
    """The parts that the task reads."""
    kept: HashShard | None = None
    """The shard whose rows the task returns; None if it returns all rows of its parts."""


def read_tasks(parts: pa.Table, options: ReadOptions, partitions: int) -> list[PlannedTask]:
    """Divide parts into tasks of about the target size; tasks are never empty.

    `partitions` divides the modulus of every part. A merge is one task.

    The option `split` decides about the shards of a heavy partition. With `map` a shard consists of
    whole parts, so no row is hashed again. With `hash` each shard's task reads all parts, and
    returns the rows of its shard.
    """
    reduces = parts["reduce"].to_numpy() % partitions
    if options.merge_by:
        everything = TaskParts(tuple(np.unique(reduces).tolist()))
        batches = parts.combine_chunks().to_batches()
        return [PlannedTask(everything, batch) for batch in batches]
    sizes = parts["bytes"].to_numpy()
    if np.any(np.diff(reduces) < 0):
        order = np.argsort(reduces, kind="stable")
        parts, reduces, sizes = parts.take(pa.array(order)), reduces[order], sizes[order]
    starts = np.flatnonzero(np.append(True, reduces[1:] != reduces[:-1])[: len(reduces)])
    present, ends = reduces[starts], np.append(starts[1:], len(reduces))
    position = {partition: i for i, partition in enumerate(present.tolist())}
    totals = np.add.reduceat(sizes, starts) if len(starts) else sizes
    cuts: dict[int, list[int]] = {}
    planned = plan(
        dict(zip(present.tolist(), totals.tolist(), strict=True)),
        options.target_partition_bytes,
        options.min_tasks,
        options.max_tasks,
        dict(zip(present.tolist(), _most_shards(parts, starts, ends, options), strict=True)),
    )
    tasks: list[PlannedTask] = []
    if not planned:
        return tasks
    (whole,) = parts.combine_chunks().to_batches()
    for task in planned:
        first, last = position[task.partitions[0]], position[task.partitions[-1]]
        start, end = int(starts[first]), int(ends[last])
        kept = None
        if task.shards > 1 and options.split == "hash":
            kept = HashShard(task.shard, task.shards)
        elif task.shards > 1:
            if first not in cuts:
                cuts[first] = _shards(sizes[start:end], start, task.shards)
            start, end = cuts[first][task.shard : task.shard + 2]
        if end > start:
            tasks.append(PlannedTask(task, whole.slice(start, end - start), kept))
    return tasks


def _most_shards(
    parts: pa.Table, starts: NDArray[np.intp], ends: NDArray[np.intp], options: ReadOptions
) -> list[int]:
    """Return the largest number of shards of each partition, given the bounds of its parts."""
    most = np.ones_like(starts)
    if options.split == "hash" and len(starts):
        rows = np.add.reduceat(parts["rows"].to_numpy(), starts)
        most = np.clip(rows, 1, MAX_SHARDS)
    elif options.split == "map" and not options.consolidate:
        # Equal rows may lie in several parts, and consolidation needs them together.
        most = ends - starts
    limits: list[int] = most.tolist()
    return limits


def partition_sizes(parts: pa.Table, partitions: int) -> dict[int, int]:
    """Return the bytes of each partition that has parts, out of `partitions`.

    >>> partition_sizes(pa.table({"reduce": [3, 0, 11], "bytes": [10, 5, 1]}), 8)
    {0: 5, 3: 11}
    """
    places = parts["reduce"].to_numpy() % partitions
    present, positions = np.unique(places, return_inverse=True)
    totals = np.zeros(len(present), np.int64)
    np.add.at(totals, positions, parts["bytes"].to_numpy())
    return dict(zip(present.tolist(), totals.tolist(), strict=True))


def partition_tasks(parts: pa.Table, count: int) -> list[pa.RecordBatch]:
    """Divide parts into one task for each of `count` partitions; tasks may be empty.

    `count` divides the modulus m of every part. A row's part is pmod(hash, m), so pmod(hash, count)
    combines the parts i, i + count, i + 2 count and so on.
    """
    whole = pa.concat_batches(parts.combine_chunks().to_batches() or [_none(parts.schema)])
    reduces = whole.column("reduce").to_numpy(zero_copy_only=False)
    places = reduces % count
    order = np.argsort(places, kind="stable")
    bounds = np.searchsorted(places[order], np.arange(count + 1))
    arranged = whole.take(pa.array(order)) if np.any(np.diff(order) < 0) else whole
    return [arranged.slice(start, end - start) for start, end in pairwise(bounds.tolist())]


def _none(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema)


def _shards(sizes: NDArray[np.int64], offset: int, shards: int) -> list[int]:
    """Return the bounds of a partition's shards: whole parts, about equal in bytes."""
    if shards >= len(sizes):
        return list(range(offset, offset + len(sizes) + 1))
    ends = np.cumsum(sizes)
    middles = ends - sizes / 2
    owner = np.minimum((middles * shards / ends[-1]).astype(np.int64), shards - 1)
    bounds: list[int] = (offset + np.searchsorted(owner, np.arange(shards + 1))).tolist()
    return bounds
