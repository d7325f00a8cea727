"""Divide a snapshot's parts into read tasks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ffq_spark.exchange.compute.planner import plan
from ffq_spark.options import ReadOptions


def read_tasks(parts: pa.Table, options: ReadOptions, partitions: int) -> list[pa.RecordBatch]:
    """Divide parts into tasks of about the target size; tasks are never empty.

    `partitions` divides the modulus of every part. The shards of a heavy partition consist of whole
    parts, so no row is hashed again. A merge is one task.
    """
    if options.merge_by:
        return list(parts.combine_chunks().to_batches())
    reduces = parts["reduce"].to_numpy() % partitions
    sizes = parts["bytes"].to_numpy()
    if np.any(np.diff(reduces) < 0):
        order = np.argsort(reduces, kind="stable")
        parts, reduces, sizes = parts.take(pa.array(order)), reduces[order], sizes[order]
    starts = np.flatnonzero(np.append(True, reduces[1:] != reduces[:-1])[: len(reduces)])
    present, ends = reduces[starts], np.append(starts[1:], len(reduces))
    position = {partition: i for i, partition in enumerate(present.tolist())}
    totals = np.add.reduceat(sizes, starts) if len(starts) else sizes
    cuts: dict[int, list[int]] = {}
    counts = np.ones_like(starts) if options.consolidate else ends - starts
    planned = plan(
        dict(zip(present.tolist(), totals.tolist(), strict=True)),
        options.target_partition_bytes,
        options.min_tasks,
        options.max_tasks,
        dict(zip(present.tolist(), counts.tolist(), strict=True)),
    )
    tasks: list[pa.RecordBatch] = []
    if not planned:
        return tasks
    (whole,) = parts.combine_chunks().to_batches()
    for task in planned:
        first, last = position[task.partitions[0]], position[task.partitions[-1]]
        start, end = int(starts[first]), int(ends[last])
        if task.shards > 1:
            if first not in cuts:
                cuts[first] = _shards(sizes[start:end], start, task.shards)
            start, end = cuts[first][task.shard : task.shard + 2]
        if end > start:
            tasks.append(whole.slice(start, end - start))
    return tasks


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
