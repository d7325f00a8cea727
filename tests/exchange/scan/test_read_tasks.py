"""Every part of a snapshot is in exactly one read task."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ffq_spark.exchange.scan.tasks import partition_tasks, read_tasks
from ffq_spark.options import ReadOptions

parts = st.lists(st.tuples(st.integers(0, 11), st.integers(1, 1000)), max_size=40)


def table(rows: list[tuple[int, int]]) -> pa.Table:
    reduces, sizes = zip(*rows, strict=True) if rows else ((), ())
    columns = {
        "reduce": pa.array(reduces, pa.int32()),
        "bytes": pa.array(sizes, pa.int64()),
        "number": pa.array(range(len(rows)), pa.int64()),
    }
    return pa.table(columns)


@given(parts, st.integers(1, 3000), st.integers(1, 8), st.integers(0, 8), st.booleans())
def test_tasks_have_every_part_once(
    rows: list[tuple[int, int]], target: int, least: int, most: int, consolidate: bool
) -> None:
    options = ReadOptions(
        target_partition_bytes=target,
        min_tasks=least,
        max_tasks=most,
        consolidate=consolidate,
    )
    tasks = read_tasks(table(rows), options, 64)
    assert all(task.num_rows for task in tasks)
    numbers = [number for task in tasks for number in task.column("number").to_pylist()]
    assert sorted(numbers) == list(range(len(rows)))
    assert not most or len(tasks) <= most
    if consolidate:
        owners = [set(task.column("reduce").to_pylist()) for task in tasks]
        assert sum(map(len, owners)) == len(set().union(*owners))


@given(parts, st.sampled_from([1, 2, 3, 4, 6, 12]))
def test_a_task_for_each_partition_has_the_rows_that_hash_to_it(
    rows: list[tuple[int, int]], count: int
) -> None:
    tasks = partition_tasks(table(sorted(rows)), count)
    assert len(tasks) == count
    for place, task in enumerate(tasks):
        assert np.all(task.column("reduce").to_numpy() % count == place)
    assert sum(task.num_rows for task in tasks) == len(rows)
