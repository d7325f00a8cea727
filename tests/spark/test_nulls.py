"""Nulls where the schema of a read declares NOT NULL, without a Spark session."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from ffq_spark.errors import ExchangeMismatch
from ffq_spark.spark.nulls import refuse_nulls

INT = pa.field("v", pa.int64(), nullable=False)
STRUCT = pa.struct([pa.field("x", pa.int64(), nullable=False)])
LIST = pa.list_(pa.field("element", pa.int64(), nullable=False))
MAP = pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))


def batch(field: pa.Field, values: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, field.type)], schema=pa.schema([field]))


@pytest.mark.parametrize(
    ("field", "values", "name"),
    [
        (INT, [1, None], "v"),
        (pa.field("s", STRUCT), [{"x": 1}, {"x": None}], "s.x"),
        (pa.field("l", LIST), [[1], [2, None]], "l.element"),
        (pa.field("m", MAP), [[("a", 1)], [("b", None)]], "m.value"),
        (pa.field("n", pa.list_(STRUCT)), [[{"x": 1}], [{"x": None}]], "n.element.x"),
    ],
)
def test_a_forbidden_null_is_refused_by_name(field: pa.Field, values: list[Any], name: str) -> None:
    with pytest.raises(ExchangeMismatch, match=f"column '{name}' holds a null"):
        refuse_nulls(batch(field, values))


@pytest.mark.parametrize(
    ("field", "values"),
    [
        (INT, [1, 2]),
        (INT, []),
        (pa.field("v", pa.int64()), [None]),
        # A null struct, list or map contains no values.
        (pa.field("s", STRUCT), [{"x": 1}, None]),
        (pa.field("l", LIST), [[1], None, []]),
        (pa.field("m", MAP), [[("a", 1)], None]),
    ],
)
def test_allowed_nulls_pass(field: pa.Field, values: list[Any]) -> None:
    given = batch(field, values)
    assert refuse_nulls(given) is given


def test_nulls_outside_a_sliced_batch_do_not_count() -> None:
    given = batch(pa.field("l", LIST), [[None], [1], [2, None]])
    assert refuse_nulls(given.slice(1, 1)).num_rows == 1
    with pytest.raises(ExchangeMismatch):
        refuse_nulls(given.slice(1, 2))
