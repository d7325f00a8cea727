"""Hypothesis strategies for the Arrow data that Spark can produce, and Spark's order of values."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

_EXACT = Context(prec=60)
_FIRST, _LAST = dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30)

DECIMALS = (pa.decimal128(9, 2), pa.decimal128(18, 0), pa.decimal128(38, 18))
TEMPORAL = (
    pa.date32(),
    pa.timestamp("us", "UTC"),
    pa.timestamp("us"),
    pa.duration("us"),
    pa.time64("ns"),
)
INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
FLOATS = (pa.float32(), pa.float64())
BYTES = (pa.string(), pa.binary())
ORDERED = (*INTEGERS, *FLOATS, *TEMPORAL, *DECIMALS, *BYTES)
SORTABLE = (*ORDERED, pa.bool_())
LEAVES = (*SORTABLE, pa.null())
FFQ_KEYS = (pa.null(), pa.bool_(), *INTEGERS, *FLOATS, pa.string())


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Generate Python values of a type, without None."""
    if pa.types.is_boolean(kind):
        return st.booleans()
    if pa.types.is_signed_integer(kind):
        bound = 1 << (kind.bit_width - 1)
        return st.integers(-bound, bound - 1) | st.integers(-3, 3)
    if pa.types.is_floating(kind):
        special = st.sampled_from([0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1.5])
        return st.floats(width=kind.bit_width) | special
    if pa.types.is_decimal(kind):
        bound = 10**kind.precision - 1
        whole = st.integers(-bound, bound) | st.integers(-3, 3)
        return whole.map(lambda n: Decimal(n).scaleb(-kind.scale, _EXACT))
    return _other_values(kind)


def _other_values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_string(kind):
        return st.text(max_size=12) | st.sampled_from(["", "a", "ä", "\U0001f600"])
    if pa.types.is_binary(kind):
        return st.binary(max_size=12)
    if pa.types.is_date(kind):
        return st.dates()
    if pa.types.is_timestamp(kind):
        zones = st.just(dt.timezone.utc) if kind.tz else st.none()
        return st.datetimes(_FIRST, _LAST, timezones=zones)
    if pa.types.is_duration(kind):
        return st.timedeltas(dt.timedelta(-90_000_000), dt.timedelta(90_000_000))
    if pa.types.is_time(kind):
        return st.times()
    return _nested_values(kind)


def _nested_values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_map(kind):
        pair = st.tuples(values(kind.key_type), cells(kind.item_type))
        return st.lists(pair, max_size=3)
    if pa.types.is_list(kind):
        return st.lists(cells(kind.value_type), max_size=3)
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries({field.name: cells(field.type) for field in kind})
    return st.none()


def cells(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Generate values and nulls of a type."""
    return st.none() if pa.types.is_null(kind) else st.none() | values(kind) | values(kind)


def arrays(kind: pa.DataType, min_size: int = 0, max_size: int = 20) -> st.SearchStrategy[pa.Array]:
    values = st.lists(cells(kind), min_size=min_size, max_size=max_size)
    return values.map(lambda items: pa.array(items, kind))


@st.composite
def kinds(draw: st.DrawFn, depth: int = 2) -> pa.DataType:
    """Generate Arrow types of Spark columns: mostly plain types, some nested up to two levels."""
    shape = draw(st.sampled_from(["leaf"] * 6 + ["list", "struct", "map"] if depth else ["leaf"]))
    if shape == "leaf":
        return draw(st.sampled_from(LEAVES))
    if shape == "list":
        return pa.list_(draw(kinds(depth - 1)))
    if shape == "map":
        key = draw(st.sampled_from([kind for kind in LEAVES if kind != pa.null()]))
        return pa.map_(key, draw(kinds(depth - 1)))
    count = draw(st.integers(1, 3))
    return pa.struct([(f"f{i}", draw(kinds(depth - 1))) for i in range(count)])


def contains_map(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    if pa.types.is_list(kind):
        return contains_map(kind.value_type)
    return pa.types.is_struct(kind) and any(contains_map(field.type) for field in kind)


def order_key(value: Any) -> tuple[int, bool, Any]:
    """Map a value to a key that Python orders as Spark orders values: nulls first, NaN last."""
    if value is None:
        return 0, False, 0
    if isinstance(value, float) and value != value:
        return 1, True, 0
    return 1, False, value.encode() if isinstance(value, str) else value


def row_keys(table: pa.Table, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the order key of every row."""
    column_keys = [[order_key(value) for value in table[name].to_pylist()] for name in columns]
    return list(zip(*column_keys, strict=True))


def texts(table: pa.Table) -> list[str]:
    """Convert each row to text, in which -0.0 differs from 0.0 and NaN equals NaN."""
    columns = [table[name].to_pylist() for name in table.column_names]
    return [repr(row) for row in zip(*columns, strict=True)]
