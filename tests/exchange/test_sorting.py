"""Rows are sorted as Spark sorts them, also where they do not fit into memory."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pyarrow as pa
import pytest
from arrow_strategies import SORTABLE, cells, row_keys, texts
from hypothesis import given, settings
from hypothesis import strategies as st

from ffq_spark.exchange.sorting import sort_rows


@st.composite
def unsorted(draw: st.DrawFn) -> tuple[list[pa.RecordBatch], list[str]]:
    """Batches of one to three columns, and the ones to sort by."""
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
    found = list(sort_rows(iter(batches), by, in_memory))
    if not batches:
        assert found == []
        return
    schema = batches[0].schema
    rows = pa.Table.from_batches(found, schema)
    assert Counter(texts(rows)) == Counter(texts(pa.Table.from_batches(batches)))
    assert all(one <= two for one, two in pairwise(row_keys(rows, by)))


@pytest.mark.parametrize("keys", ["integers", "nulls", "words"])
def test_what_does_not_fit_goes_through_disk(keys: str) -> None:
    """A million rows in an eighth of the memory they take; the allocator tells the peak."""
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
    for found in sort_rows((batch.slice(i * step, step) for i in range(pieces)), ["k"], limit):
        peak = max(peak, pa.total_allocated_bytes() - before)
        first = found["k"][0].as_py()
        assert last is None or first >= last
        rows, last = rows + found.num_rows, found["k"][-1].as_py()
    assert rows == count
    assert peak < 4 * limit
