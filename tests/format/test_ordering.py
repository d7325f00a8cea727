"""Rows are ordered as Spark orders them: nulls first, NaN last."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffq_spark.errors import UnsupportedType
from ffq_spark.format.ordering import check_sortable, sort_indices

floats = st.none() | st.floats(width=32)


def spark_key(value: float | None) -> tuple[bool, bool, float]:
    is_nan = value is not None and math.isnan(value)
    return value is not None, is_nan, 0.0 if value is None or is_nan else value


@given(rows=st.lists(st.tuples(floats, st.none() | st.integers(0, 3)), max_size=30))
def test_the_order_is_stable_and_sparks(rows: list[tuple[float | None, int | None]]) -> None:
    columns = [
        pa.array([row[0] for row in rows], pa.float64()),
        pa.array([row[1] for row in rows], pa.int64()),
    ]
    expected = sorted(
        range(len(rows)), key=lambda i: (spark_key(rows[i][0]), spark_key(rows[i][1]))
    )
    assert sort_indices(columns).to_pylist() == expected


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.date32(), pa.decimal128(9, 2)])
def test_plain_types_can_be_sorted(kind: Any) -> None:
    check_sortable("c", kind)


@pytest.mark.parametrize("kind", [pa.null(), pa.list_(pa.int64()), pa.struct([("a", pa.int64())])])
def test_a_type_without_an_order_is_refused(kind: Any) -> None:
    with pytest.raises(UnsupportedType, match="column 'c'") as caught:
        check_sortable("c", kind)
    assert caught.value.option == "sortBy"
