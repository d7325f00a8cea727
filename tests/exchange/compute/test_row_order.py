"""The order of rows is that of Arrow's stable sort, for every type and any combination."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from arrow_strategies import SORTABLE, cells
from hypothesis import given, settings
from hypothesis import strategies as st

from ffq_spark.exchange.compute.row_order import row_order
from ffq_spark.format.ordering import sort_indices


@st.composite
def some_rows(draw: st.DrawFn) -> pa.RecordBatch:
    """Generate rows of one to three columns, most of them with equal values."""
    kinds = [draw(st.sampled_from(SORTABLE)) for _ in range(draw(st.integers(1, 3)))]
    count = draw(st.integers(0, 40))
    columns = {}
    for number, kind in enumerate(kinds):
        pool = draw(st.lists(cells(kind), min_size=1, max_size=6))
        values = draw(st.lists(st.sampled_from(pool), min_size=count, max_size=count))
        columns[f"k{number}"] = pa.array(values, kind)
    return pa.record_batch(columns)


@settings(max_examples=400)
@given(some_rows())
def test_rows_are_ordered_as_by_a_stable_sort(rows: pa.RecordBatch) -> None:
    assert row_order(rows, rows.schema.names).tolist() == sort_indices(rows.columns).to_pylist()


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("kind", [np.int32, np.int64, np.float64])
def test_many_rows_of_the_widest_range(kind: Any, nulls: bool) -> None:
    """Numbers that leave no room for their places in 64 bits are sorted in two passes."""
    generator = np.random.default_rng(5)
    limits = np.iinfo(np.int32 if kind is np.int32 else np.int64)
    numbers = generator.integers(limits.min, limits.max, 50_000, endpoint=True)
    numbers[:4] = [limits.min, limits.max, 0, -1]
    again = np.concatenate([numbers, numbers])
    values = again.astype(np.int64).view(np.float64) if kind is np.float64 else again.astype(kind)
    column = pa.array(values, mask=np.arange(len(values)) % 7 == 0 if nulls else None)
    rows = pa.record_batch({"k": column, "v": pa.array(generator.integers(0, 9, len(values)))})
    for by in (["k"], ["k", "v"], ["v", "k"]):
        expected = sort_indices([rows[name] for name in by])
        assert np.array_equal(row_order(rows, by), expected.to_numpy()), by
