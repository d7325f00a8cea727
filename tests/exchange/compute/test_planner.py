"""FFQ's adaptive planning: every byte is in exactly one task, for any limits."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ffq_spark.exchange.compute.planner import TaskParts, plan
from ffq_spark.exchange.scan.tasks import read_tasks
from ffq_spark.options import ReadOptions

sizes = st.dictionaries(st.integers(0, 200), st.integers(0, 1000), max_size=30)
targets = st.integers(1, 600)
least = st.integers(1, 40)
most = st.integers(0, 40)


def whole(*partitions: int) -> TaskParts:
    return TaskParts(partitions)


@pytest.mark.parametrize(
    ("observed", "target", "limits", "expected"),
    [
        ({0: 10, 1: 15, 2: 5, 3: 20}, 25, (1, 0), [whole(0, 1), whole(2, 3)]),
        (
            {0: 8, 1: 120, 2: 8, 3: 8},
            32,
            (1, 8),
            [whole(0), *(TaskParts((1,), shard, 4) for shard in range(4)), whole(2, 3)],
        ),
        ({0: 1, 1: 1, 2: 1, 3: 1, 4: 1}, 100, (2, 0), [whole(0, 1), whole(2, 3, 4)]),
        ({0: 1, 1: 1, 2: 1}, 100, (9, 0), [whole(0), whole(1), whole(2)]),
        ({0: 30, 1: 30, 2: 30}, 30, (1, 2), [whole(0), whole(1, 2)]),
        ({5: 100}, 50, (1, 0), [TaskParts((5,), 0, 2), TaskParts((5,), 1, 2)]),
        ({5: 51}, 50, (1, 0), [TaskParts((5,), 0, 2), TaskParts((5,), 1, 2)]),
        ({5: 50}, 50, (1, 0), [whole(5)]),
        ({5: 1000}, 50, (1, 3), [TaskParts((5,), shard, 3) for shard in range(3)]),
        ({5: 1000}, 50, (1, 1), [whole(5)]),
        # Partitions above the target are not heavy if all have about the same size.
        ({0: 30, 1: 30, 2: 30}, 25, (1, 0), [whole(0), whole(1), whole(2)]),
        ({}, 25, (4, 8), []),
    ],
)
def test_plans_follow_ffqs_rules(
    observed: dict[int, int], target: int, limits: tuple[int, int], expected: list[TaskParts]
) -> None:
    assert plan(observed, target, *limits) == expected


def test_a_partition_has_no_more_shards_than_pieces() -> None:
    tasks = plan({0: 1000, 1: 1000, 2: 4}, 10, 1, 9, pieces={0: 3, 1: 1, 2: 2})
    assert tasks == [*(TaskParts((0,), shard, 3) for shard in range(3)), whole(1), whole(2)]


@pytest.mark.parametrize(
    ("parts", "target", "expected"),
    [
        ([100, 100, 100, 100, 600], 100, [100, 100, 100, 100, 600]),
        ([*[100] * 9, 9100], 64, [*[100] * 9, 9100]),
        ([10] * 8, 40, [40, 40]),
    ],
)
def test_parts_above_the_target_are_read_alone(
    parts: list[int], target: int, expected: list[int]
) -> None:
    table = pa.table({"reduce": [0] * len(parts), "bytes": parts})
    tasks = read_tasks(table, ReadOptions(target_partition_bytes=target), 64)
    assert [sum(task.parts["bytes"].to_pylist()) for task in tasks] == expected


@settings(max_examples=500)
@given(sizes, targets, least, most)
def test_every_partition_is_planned_exactly_once(
    observed: dict[int, int], target: int, low: int, high: int
) -> None:
    groups = plan(observed, target, low, high)
    seen = Counter((p, group.shard) for group in groups for p in group.partitions)
    assert set(seen.values()) <= {1}
    for partition in observed:
        (count,) = {group.shards for group in groups if partition in group.partitions}
        assert {shard for p, shard in seen if p == partition} == set(range(count))
    assert {p for p, _ in seen} == set(observed)
    assert all(len(group.partitions) == 1 or group.shards == 1 for group in groups)


@settings(max_examples=500)
@given(sizes, targets, least, most)
def test_neighbours_are_joined_up_to_the_target(
    observed: dict[int, int], target: int, low: int, high: int
) -> None:
    groups = plan(observed, target, low, high)
    order = [p for group in groups if group.shard == 0 for p in group.partitions]
    assert order == sorted(observed)
    if high == 0:
        for group in groups:
            joined = len(group.partitions) > 1
            assert not joined or sum(observed[p] for p in group.partitions) <= target


@settings(max_examples=500)
@given(sizes, targets, least, most)
def test_the_number_of_tasks_stays_within_its_limits(
    observed: dict[int, int], target: int, low: int, high: int
) -> None:
    groups = plan(observed, target, low, high)
    if high:
        assert len(groups) <= high
    reachable = min(low, len(observed), high or len(observed))
    assert len(groups) >= reachable


@settings(max_examples=300)
@given(sizes, targets, least, most, st.randoms())
def test_the_order_of_the_sizes_does_not_matter(
    observed: dict[int, int], target: int, low: int, high: int, random: Any
) -> None:
    items = list(observed.items())
    random.shuffle(items)
    assert plan(dict(items), target, low, high) == plan(observed, target, low, high)


@given(sizes, targets)
def test_a_heavy_partition_has_shards_of_at_most_the_target(
    observed: dict[int, int], target: int
) -> None:
    for group in plan(observed, target):
        size = sum(observed[p] for p in group.partitions)
        if group.shards > 1:
            assert size > target and size <= group.shards * target
        else:
            # A partition of four times the target is heavy, even if all others are too.
            assert size < 4 * target or size <= target


# --- from partitions to parts -----------------------------------------------------------------


@st.composite
def part_tables(draw: st.DrawFn) -> pa.Table:
    """Generate parts of several partitions, in any order; `number` identifies a part."""
    rows = draw(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 500)), max_size=40))
    return pa.table(
        {
            "reduce": pa.array([reduce for reduce, _ in rows], pa.int32()),
            "bytes": pa.array([size for _, size in rows], pa.int64()),
            "number": pa.array(range(len(rows)), pa.int64()),
        }
    )


@settings(max_examples=500)
@given(part_tables(), targets, least, most)
def test_tasks_together_read_every_part_exactly_once(
    parts: pa.Table, target: int, low: int, high: int
) -> None:
    options = ReadOptions(target_partition_bytes=target, min_tasks=low, max_tasks=high)
    tasks = read_tasks(parts, options, 64)
    numbers = [number for task in tasks for number in task.parts["number"].to_pylist()]
    assert sorted(numbers) == list(range(parts.num_rows))
    assert all(task.parts.num_rows for task in tasks)
    if high:
        assert len(tasks) <= high


@settings(max_examples=300)
@given(part_tables(), targets)
def test_a_task_reads_neighbours_or_one_heavy_partition(parts: pa.Table, target: int) -> None:
    tasks = read_tasks(parts, ReadOptions(target_partition_bytes=target), 64)
    reduces = [task.parts["reduce"].to_pylist() for task in tasks]
    assert [r for task in reduces for r in task] == sorted(parts["reduce"].to_pylist())
    for task in tasks:
        if len(set(task.parts["reduce"].to_pylist())) > 1:
            assert sum(task.parts["bytes"].to_pylist()) <= target


def test_shards_of_a_heavy_partition_hold_about_the_same_bytes() -> None:
    parts = pa.table({"reduce": pa.array([0] * 100, pa.int32()), "bytes": pa.array([10] * 100)})
    tasks = read_tasks(parts, ReadOptions(target_partition_bytes=250), 64)
    assert [task.parts.num_rows for task in tasks] == [25, 25, 25, 25]


def test_a_part_is_never_split_between_shards() -> None:
    parts = pa.table({"reduce": pa.array([0], pa.int32()), "bytes": pa.array([1 << 40])})
    (task,) = read_tasks(parts, ReadOptions(target_partition_bytes=1 << 30), 64)
    assert task.parts.to_pylist() == parts.to_pylist()
