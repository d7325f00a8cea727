"""Rows are sorted as Spark sorts them, even if they do not fit into memory."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pytest
from arrow_strategies import SORTABLE, cells, row_keys, texts
from hypothesis import given, settings
from hypothesis import strategies as st
from layouts import write_options

from ffq_spark import Exchange
from ffq_spark.errors import CorruptPart
from ffq_spark.exchange.compute.sorting import FAN_IN, check_sorted, sort_rows
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.write.attempt_writer import write_attempt
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.exchange.write.map_outputs import examine
from ffq_spark.exchange.write.prepare import prepare
from ffq_spark.store import Store


@st.composite
def unsorted(draw: st.DrawFn) -> tuple[list[pa.RecordBatch], list[str]]:
    """Generate batches of one to three columns, and the columns to sort by."""
    kinds = [draw(st.sampled_from(SORTABLE)) for _ in range(draw(st.integers(1, 3)))]
    schema = pa.schema([(f"k{i}", kind) for i, kind in enumerate(kinds)])
    batches = []
    for _ in range(draw(st.integers(0, 5))):
        count = draw(st.integers(0, 9))
        columns = [draw(st.lists(cells(k), min_size=count, max_size=count)) for k in kinds]
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return batches, schema.names[: draw(st.integers(1, len(kinds)))]


@settings(max_examples=200)
@given(unsorted(), st.sampled_from([0, 40, 1 << 20]))
def test_every_row_comes_out_once_and_in_order(
    case: tuple[list[pa.RecordBatch], list[str]], in_memory: int
) -> None:
    batches, by = case
    sorted_batches = list(sort_rows(iter(batches), by, in_memory))
    if not batches:
        assert sorted_batches == []
        return
    schema = batches[0].schema
    rows = pa.Table.from_batches(sorted_batches, schema)
    assert Counter(texts(rows)) == Counter(texts(pa.Table.from_batches(batches)))
    assert all(one <= two for one, two in pairwise(row_keys(rows, by)))


@pytest.mark.parametrize("keys", ["integers", "nulls", "words"])
def test_what_does_not_fit_goes_through_disk(keys: str) -> None:
    """A million rows are sorted in an eighth of their size, measured by Arrow's allocator."""
    count, pieces = 1 << 20, 16
    numbers = pa.array([(i * 7919) % 1_000_003 for i in range(count)])
    column = {
        "integers": lambda: numbers,
        "nulls": lambda: pa.array([n if n % 11 else None for n in numbers.to_pylist()]),
        "words": lambda: numbers.cast(pa.string()),
    }[keys]()
    batch = pa.record_batch({"k": column, "v": numbers})
    step = count // pieces
    limit = batch.nbytes // 8
    before = pa.total_allocated_bytes()
    peak = rows = 0
    last = None
    for sorted_batch in sort_rows(
        (batch.slice(i * step, step) for i in range(pieces)), ["k"], limit
    ):
        peak = max(peak, pa.total_allocated_bytes() - before)
        first = sorted_batch["k"][0].as_py()
        assert last is None or first >= last
        rows, last = rows + sorted_batch.num_rows, sorted_batch["k"][-1].as_py()
    assert rows == count
    assert peak < 4 * limit


def test_runs_are_merged_in_stages_and_equal_rows_keep_their_order() -> None:
    """More runs than three levels hold stay few open files, and few batches in memory."""
    count = FAN_IN * FAN_IN + FAN_IN + 5
    rows = [pa.record_batch({"k": [i % 3, i % 5], "at": [2 * i, 2 * i + 1]}) for i in range(count)]
    most = 0

    def watched() -> Iterator[pa.RecordBatch]:
        nonlocal most
        for batch in rows:
            yield batch
            most = max(most, len(os.listdir("/proc/self/fd")))

    before = len(os.listdir("/proc/self/fd"))
    table = pa.Table.from_batches(sort_rows(watched(), ["k"], in_memory=0))
    assert most - before < 3 * FAN_IN
    keys = list(zip(table["k"].to_pylist(), table["at"].to_pylist(), strict=True))
    assert keys == sorted(keys)
    assert sorted(table["at"].to_pylist()) == list(range(2 * count))


def test_wide_rows_are_spilled_in_batches_of_few_bytes() -> None:
    """The memory of a merge is bounded in bytes, so wide rows come in few at a time."""
    wide = [pa.record_batch({"k": [i], "t": ["x" * 50_000]}) for i in range(999, -1, -1)]
    limit = 1 << 20
    pool = pa.default_memory_pool()
    before, peak, keys = pool.bytes_allocated(), 0, []
    for batch in sort_rows(iter(wide), ["k"], limit):
        peak = max(peak, pool.bytes_allocated() - before)
        keys += batch["k"].to_pylist()
    assert keys == list(range(1000))
    assert peak < 4 * limit


@settings(max_examples=100)
@given(unsorted())
def test_rows_out_of_order_are_found(case: tuple[list[pa.RecordBatch], list[str]]) -> None:
    batches, by = case
    keys = [key for batch in batches for key in row_keys(pa.Table.from_batches([batch]), by)]
    if all(one <= two for one, two in pairwise(keys)):
        assert list(check_sorted(batches, by, "part")) == batches
    else:
        with pytest.raises(CorruptPart, match="not sorted by k0"):
            list(check_sorted(batches, by, "part"))


def test_a_step_that_promises_an_order_it_lacks_is_refused_and_found(root: str) -> None:
    """The order is checked when a caller registers its own files, and by `verify`."""
    options = write_options(keys=("k",), partitions=1, sort_by=("k",))
    store, schema = Store(root), pa.schema([("k", pa.int64())])
    exchange = prepare(store, options, schema)
    ledger = Ledger(store)
    query = ledger.begin("append", "app")
    job = WriteJob.of(exchange, query, options)
    rows = [pa.record_batch([[5, 1, 3]], schema=schema)]
    unsorted = write_attempt(store, replace(job, sort_by=()), 0, 1, rows)
    with pytest.raises(CorruptPart, match="not sorted by k"):
        examine(store, job, unsorted.id)
    ordered = write_attempt(store, job, 0, 2, rows)
    assert examine(store, job, ordered.id).id == ordered.id
    ledger.commit(query, exchange, [unsorted], sort_by=("k",))
    (finding,) = Exchange(root).verify().findings
    assert (finding.code, finding.message) == ("FFQ_CORRUPT_PART", "its rows are not sorted by k")
