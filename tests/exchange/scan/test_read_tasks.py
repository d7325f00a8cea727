"""Every part of a snapshot is in exactly one read task, or in one task for each shard by hash."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffq_spark.exchange.compute.hash_shards import HashShard
from ffq_spark.exchange.scan.tasks import PlannedTask, partition_tasks, read_tasks
from ffq_spark.options import ReadOptions

parts = st.lists(st.tuples(st.integers(0, 11), st.integers(1, 1000)), max_size=40)
splits = st.sampled_from(["never", "hash", "map"])


def table(rows: list[tuple[int, int]]) -> pa.Table:
    reduces, sizes = zip(*rows, strict=True) if rows else ((), ())
    columns = {
        "reduce": pa.array(reduces, pa.int32()),
        "bytes": pa.array(sizes, pa.int64()),
        "rows": pa.array([1 + size // 100 for size in sizes], pa.int64()),
        "number": pa.array(range(len(rows)), pa.int64()),
    }
    return pa.table(columns)


def numbers(task: PlannedTask) -> list[int]:
    values: list[int] = task.parts.column("number").to_pylist()
    return values


@given(parts, st.integers(1, 3000), st.integers(1, 8), st.integers(0, 8), st.booleans(), splits)
def test_tasks_have_every_part_once(
    rows: list[tuple[int, int]], target: int, least: int, most: int, consolidate: bool, split: str
) -> None:
    options = ReadOptions(
        target_partition_bytes=target,
        min_tasks=least,
        max_tasks=most,
        consolidate=consolidate,
        split=split,
    )
    tasks = read_tasks(table(rows), options, 64)
    assert all(task.parts.num_rows for task in tasks)
    firsts = [task for task in tasks if task.kept is None or task.kept.number == 0]
    assert sorted(n for task in firsts for n in numbers(task)) == list(range(len(rows)))
    assert not most or len(tasks) <= most
    if consolidate or split != "map":
        owners = [set(task.parts.column("reduce").to_pylist()) for task in firsts]
        assert sum(map(len, owners)) == len(set().union(*owners))
    if split == "never":
        assert all(task.planned.shards == 1 for task in tasks)
    assert split == "hash" or all(task.kept is None for task in tasks)


@given(parts, st.integers(1, 1000), st.integers(0, 30))
def test_the_shards_of_a_partition_by_hash_have_all_its_parts(
    rows: list[tuple[int, int]], target: int, most: int
) -> None:
    options = ReadOptions(target_partition_bytes=target, max_tasks=most, split="hash")
    tasks = read_tasks(table(rows), options, 64)
    for partitions, group in groupby(tasks, key=lambda task: task.planned.partitions):
        own = list(group)
        if len(own) == 1:
            assert own[0].kept is None
            continue
        assert [task.kept for task in own] == [HashShard(n, len(own)) for n in range(len(own))]
        assert all(task.parts.equals(own[0].parts) for task in own)
        assert set(own[0].parts.column("reduce").to_pylist()) == set(partitions)
        assert len(own) <= sum(own[0].parts.column("rows").to_pylist())


@pytest.mark.parametrize(("split", "expected"), [("never", 1), ("map", 3), ("hash", 10)])
def test_a_heavy_partition_of_few_parts(split: str, expected: int) -> None:
    """Parts limit the shards of `map`, and rows those of `hash`."""
    options = ReadOptions(target_partition_bytes=100, split=split)
    assert len(read_tasks(table([(0, 300), (0, 400), (0, 300)]), options, 64)) == expected
    few = table([(0, 10_000)]).set_column(2, "rows", pa.array([4], pa.int64()))
    assert len(read_tasks(few, options, 64)) == (4 if split == "hash" else 1)


@given(parts, st.sampled_from([1, 2, 3, 4, 6, 12]))
def test_a_task_for_each_partition_has_the_rows_that_hash_to_it(
    rows: list[tuple[int, int]], count: int
) -> None:
    tasks = partition_tasks(table(sorted(rows)), count)
    assert len(tasks) == count
    for place, task in enumerate(tasks):
        assert np.all(task.column("reduce").to_numpy() % count == place)
    assert sum(task.num_rows for task in tasks) == len(rows)
