"""Merging sorted runs returns every row once, in order, and holds few batches of each run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
from arrow_strategies import SORTABLE, cells, row_keys, texts
from hypothesis import given, settings
from hypothesis import strategies as st

from ffq_spark.exchange.compute.merge import merge_sorted
from ffq_spark.format.ordering import sort_indices


@st.composite
def sorted_runs(draw: st.DrawFn) -> tuple[list[list[pa.RecordBatch]], list[str]]:
    """Generate sorted runs, cut into batches; each row has its `run` and its position `at`."""
    kinds = [draw(st.sampled_from(SORTABLE)) for _ in range(draw(st.integers(1, 2)))]
    by = [f"k{i}" for i in range(len(kinds))]
    pools = [draw(st.lists(cells(kind), min_size=1, max_size=5)) for kind in kinds]
    schema = pa.schema([*zip(by, kinds, strict=True), ("run", pa.int64()), ("at", pa.int64())])
    runs = []
    for number in range(draw(st.integers(0, 4))):
        count = draw(st.integers(0, 12))
        keys = [
            pa.array(draw(st.lists(st.sampled_from(pool), min_size=count, max_size=count)), kind)
            for pool, kind in zip(pools, kinds, strict=True)
        ]
        keys = [key.take(sort_indices(keys)) for key in keys] if count else keys
        places = [pa.array([number] * count, pa.int64()), pa.array(range(count), pa.int64())]
        run = pa.record_batch([*keys, *places], schema=schema)
        runs.append(pieces(run, draw(st.integers(1, 5))))
    return runs, by


def pieces(run: pa.RecordBatch, rows: int) -> list[pa.RecordBatch]:
    """Cut a run into batches, with an empty batch among them."""
    slices = [run.slice(start, rows) for start in range(0, run.num_rows, rows)]
    return [*slices[:1], run.slice(0, 0), *slices[1:]]


@settings(max_examples=400)
@given(sorted_runs())
def test_every_row_comes_out_once_and_in_order(
    case: tuple[list[list[pa.RecordBatch]], list[str]],
) -> None:
    runs, by = case
    merged = list(merge_sorted([iter(run) for run in runs], by))
    rows = [batch for run in runs for batch in run]
    if not rows:
        assert merged == []
        return
    table = pa.Table.from_batches(merged, rows[0].schema)
    assert Counter(texts(table)) == Counter(texts(pa.Table.from_batches(rows)))
    order = row_keys(table, by)
    assert all(one <= two for one, two in pairwise(order))


@settings(max_examples=400)
@given(sorted_runs())
def test_equal_rows_come_in_the_order_of_their_runs(
    case: tuple[list[list[pa.RecordBatch]], list[str]],
) -> None:
    runs, by = case
    merged = list(merge_sorted([iter(run) for run in runs], by))
    if merged:
        order = row_keys(pa.Table.from_batches(merged), [*by, "run", "at"])
        assert all(one < two for one, two in pairwise(order))


class Watched:
    """A run that counts the batches that were taken from it."""

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self.taken = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        batch = next(self._batches)
        self.taken += 1
        return batch


def numbers(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"k": pa.array(values, pa.int64())})


def test_a_run_is_read_no_further_than_its_rows_were_given_out() -> None:
    """The merge holds at most two batches of each run, and takes the next only when it needs it."""
    low = Watched([numbers(*range(i, i + 10)) for i in range(0, 500, 10)])
    high = Watched([numbers(*range(i, i + 10)) for i in range(500, 1000, 10)])
    merged = merge_sorted([low, high], ["k"])
    given_out = 0
    while given_out < 500:
        given_out += next(merged).num_rows
        assert 10 * low.taken <= given_out + 20
        assert high.taken == 1 or given_out > 500
    assert given_out + sum(batch.num_rows for batch in merged) == 1000


def test_runs_that_interleave_give_many_rows_a_round() -> None:
    even = iter([numbers(*range(0, 1000, 2))])
    odd = iter([numbers(*range(1, 1000, 2))])
    merged = list(merge_sorted([even, odd], ["k"]))
    assert len(merged) <= 3
    assert [value for batch in merged for value in batch["k"].to_pylist()] == list(range(1000))


def test_no_runs_one_run_and_empty_runs() -> None:
    def run(*batches: pa.RecordBatch) -> Iterator[Any]:
        return iter(batches)

    assert list(merge_sorted([], ["k"])) == []
    assert list(merge_sorted([run(), run(numbers())], ["k"])) == []
    assert list(merge_sorted([run(), run(numbers(1), numbers(2))], ["k"])) == [
        numbers(1),
        numbers(2),
    ]
