"""Describe the tasks of a read before it runs, from the log and the manifests alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import pyarrow as pa

from ffq_spark.exchange.compute.planner import heavy_partitions
from ffq_spark.exchange.read.fetch import RANGES_AT_ONCE
from ffq_spark.exchange.read.ranges import count_ranges
from ffq_spark.exchange.read.row_shape import output_schema
from ffq_spark.exchange.read.rows import check_readable
from ffq_spark.exchange.scan.partitioning import check_mergeable
from ffq_spark.exchange.scan.snapshot import take_snapshot
from ffq_spark.exchange.scan.tasks import PlannedTask, partition_sizes, read_tasks
from ffq_spark.format.records import ExchangeRecord
from ffq_spark.options import ReadOptions
from ffq_spark.store import Store


@dataclass(frozen=True)
class TaskPlan:
    """What one read task reads: whole partitions, or one shard of a heavy partition."""

    partitions: tuple[int, ...]
    shard: int
    shards: int
    """The number of tasks among which the partition is divided; 1 for whole partitions."""
    parts: int
    rows: int
    """The rows that the task decodes. A shard by hash returns a share of them."""
    bytes: int
    """The bytes that the task reads if it reads all columns."""
    requests: int
    """The GETs of the task on an object store if it reads all columns."""


@dataclass(frozen=True)
class HeavyPartition:
    """A partition that is larger than the target and much larger than the others."""

    partition: int
    bytes: int
    tasks: int
    """The number of tasks that read it."""
    advice: str
    """How to read it better, or what its division costs; empty if there is nothing to say."""


@dataclass(frozen=True)
class ReadPlan:
    """The tasks of a read, as Spark and the service plan them by size."""

    split: str
    target_partition_bytes: int
    parts: int
    rows: int
    bytes: int
    """The bytes of all parts, each counted once. With `split=hash` the tasks read more."""
    tasks: tuple[TaskPlan, ...]
    heavy: tuple[HeavyPartition, ...]

    @property
    def read_bytes(self) -> int:
        """The bytes that all tasks together read."""
        return sum(task.bytes for task in self.tasks)

    @property
    def requests(self) -> int:
        """The GETs of all tasks together."""
        return sum(task.requests for task in self.tasks)

    @property
    def largest(self) -> int:
        """The bytes that the largest task reads."""
        return max((task.bytes for task in self.tasks), default=0)

    @property
    def median(self) -> int:
        """The median of the bytes that a task reads."""
        return int(median(task.bytes for task in self.tasks)) if self.tasks else 0


def plan_read(store: Store, options: ReadOptions) -> ReadPlan:
    """Plan a read without filters; no data is opened."""
    snapshot = take_snapshot(store, options)
    exchange = snapshot.exchange
    check_readable(exchange, options)
    check_mergeable(snapshot, options)
    output_schema(exchange.schema, options)
    parts = snapshot.parts(partitions=options.partitions)
    tasks = tuple(_task_plans(read_tasks(parts, options, exchange.partitions), options))
    # A merge reads all partitions in one task, whatever their sizes.
    heavy = () if options.merge_by else _heavy_partitions(parts, tasks, options, exchange)
    return ReadPlan(
        options.split,
        options.target_partition_bytes,
        parts.num_rows,
        _total(parts, "rows"),
        _total(parts, "bytes"),
        tasks,
        tuple(heavy),
    )


def _task_plans(tasks: Sequence[PlannedTask], options: ReadOptions) -> Iterator[TaskPlan]:
    joined = max(options.credits // RANGES_AT_ONCE, 1)
    first: TaskPlan | None = None
    for task in tasks:
        planned, parts = task.planned, task.parts
        if first is not None and task.kept is not None and task.kept.number:
            # The shards of a partition by hash read the same parts.
            yield replace(first, shard=planned.shard)
            continue
        first = TaskPlan(
            planned.partitions,
            planned.shard,
            planned.shards,
            parts.num_rows,
            _total(parts, "rows"),
            _total(parts, "bytes"),
            count_ranges(parts, joined),
        )
        yield first


def _total(parts: pa.Table | pa.RecordBatch, name: str) -> int:
    return int(np.sum(parts[name].to_numpy()))


def _heavy_partitions(
    parts: pa.Table, tasks: Sequence[TaskPlan], options: ReadOptions, exchange: ExchangeRecord
) -> Iterator[HeavyPartition]:
    sizes = partition_sizes(parts, exchange.partitions)
    marked = heavy_partitions(sizes, options.target_partition_bytes)
    shards: dict[int, list[int]] = {partition: [] for partition in marked}
    for task in tasks:
        if task.shards > 1:
            shards[task.partitions[0]].append(task.bytes)
    is_limited = 0 < options.max_tasks <= len(tasks)
    for partition in marked:
        # A partition without shards is read by one task, alone or with its neighbours.
        read = shards[partition] or [sizes[partition]]
        advice = _advice(read, options, is_limited=is_limited, has_keys=bool(exchange.keys))
        yield HeavyPartition(partition, sizes[partition], len(read), advice)


def _advice(read: list[int], options: ReadOptions, *, is_limited: bool, has_keys: bool) -> str:
    """Say how to read a heavy partition better, or what its division costs.

    `read` has the bytes that each of its tasks reads.
    """
    by_hash = "split=hash divides it by keys"
    if options.split == "hash" and len(read) > 1:
        return (
            f"each of its {len(read)} tasks reads all of it and returns the rows of its own keys; "
            "a larger targetPartitionBytes makes fewer tasks; the rows of one key stay in one task"
        )
    if len(read) > 1 and max(read) <= 2 * options.target_partition_bytes:
        return ""
    state = f"one of its {len(read)} tasks is large" if len(read) > 1 else "one task reads it"
    if options.split != "never" and is_limited:
        return f"{state}, because maxTasks allows no more"
    if options.split == "never" and not options.consolidate:
        return f"{state}; split=map divides it by parts{f', and {by_hash}' if has_keys else ''}"
    if options.split != "hash" and has_keys:
        return f"{state}; {by_hash}"
    return f"{state}, because parts are not divided; more map tasks write more parts"
