"""Cutting a snapshot's parts into read tasks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ffq_spark.exchange.planner import plan
from ffq_spark.options import ReadOptions


def read_tasks(parts: pa.Table, options: ReadOptions) -> list[pa.Table]:
    """The parts of each task; a partition without rows costs nothing.

    Shards of a heavy partition are made of whole parts: shards of equal bytes need no second hash.
    """
    reduces, sizes = parts["reduce"].to_numpy(), parts["bytes"].to_numpy()
    order = np.argsort(reduces, kind="stable")
    if not np.array_equal(order, np.arange(len(order))):
        parts, reduces, sizes = parts.take(pa.array(order)), reduces[order], sizes[order]
    present, starts = np.unique(reduces, return_index=True)
    ends = np.append(starts[1:], len(reduces))
    position = {int(partition): i for i, partition in enumerate(present)}
    totals = np.add.reduceat(sizes, starts) if len(starts) else sizes
    groups = plan(
        {int(p): int(size) for p, size in zip(present, totals, strict=True)},
        options.target_partition_bytes,
        options.min_tasks,
        options.max_tasks,
        split=not options.consolidate,
    )
    tasks = []
    for group in groups:
        first, last = position[group.partitions[0]], position[group.partitions[-1]]
        start, end = int(starts[first]), int(ends[last])
        if group.shards > 1:
            start, end = _shard(sizes[start:end], start, group.shard, group.shards)
        if end > start:
            tasks.append(parts.slice(start, end - start))
    return tasks


def _shard(sizes: np.ndarray, offset: int, shard: int, shards: int) -> tuple[int, int]:
    """Neighbouring parts with about the shard's share of the bytes."""
    middles = np.cumsum(sizes) - sizes / 2
    share = sizes.sum() / shards
    owner = np.minimum((middles // share).astype(np.int64), shards - 1)
    start, end = np.searchsorted(owner, [shard, shard + 1])
    return offset + int(start), offset + int(end)
