"""Conforming rows to another form of the same types changes no value, at any depth."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from arrow_strategies import arrays, kinds, texts
from hypothesis import given, settings
from hypothesis import strategies as st

from ffq_spark.errors import UnsupportedType
from ffq_spark.format.conform import conform


def respelled(kind: pa.DataType) -> pa.DataType:
    """Return the type as another Arrow producer may write it, with other names of inner fields."""
    if pa.types.is_map(kind):
        key = pa.field("k", respelled(kind.key_type), nullable=False)
        return pa.map_(key, pa.field("v", respelled(kind.item_type)))
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", respelled(kind.value_type)))
    if pa.types.is_struct(kind):
        marks = {"origin": "elsewhere"}
        return pa.struct([pa.field(f.name, respelled(f.type), metadata=marks) for f in kind])
    return {
        pa.string(): pa.large_string(),
        pa.binary(): pa.large_binary(),
        pa.timestamp("us", "UTC"): pa.timestamp("us", "Etc/UTC"),
    }.get(kind, kind)


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    """Generate a batch that may be a slice of a larger one, like those of Spark and of spilling."""
    kind = draw(kinds())
    whole = draw(arrays(kind, max_size=12))
    start = draw(st.integers(0, len(whole)))
    part = whole.slice(start, draw(st.integers(0, len(whole) - start)))
    return pa.record_batch([part, pa.array(range(len(part)), pa.int64())], names=["c", "n"])


def same(one: pa.RecordBatch, two: pa.RecordBatch) -> bool:
    return texts(pa.table(one)) == texts(pa.table(two))


@settings(max_examples=400)
@given(batches())
def test_there_and_back_gives_the_same_values_in_exactly_the_schema(batch: pa.RecordBatch) -> None:
    other = pa.schema([("n", pa.int64()), ("c", respelled(batch.schema.field("c").type))])
    converted = conform(batch, other)
    assert converted.schema.equals(other, check_metadata=True)
    converted.validate(full=True)
    back = conform(converted, batch.schema)
    assert back.schema.equals(batch.schema, check_metadata=True)
    back.validate(full=True)
    assert same(back, batch)


@given(batches())
def test_a_batch_of_the_schema_is_given_back_untouched(batch: pa.RecordBatch) -> None:
    assert conform(batch, batch.schema) is batch


def test_nullability_is_the_schemas() -> None:
    strict = pa.schema([pa.field("c", pa.int64(), nullable=False)])
    loose = pa.schema([pa.field("c", pa.int64())])
    batch = pa.record_batch([[1, 2]], schema=strict)
    assert conform(batch, loose).schema.field("c").nullable


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (pa.array([1 << 40]), pa.int32()),
        (pa.array(["x"]), pa.int64()),
        (pa.array([1.5]), pa.int64()),
        (pa.array([{"a": 1}]), pa.struct([("a", pa.int64()), ("b", pa.int64())])),
        (pa.array([{"a": 1}]), pa.int64()),
        (pa.array([[1]]), pa.map_(pa.int64(), pa.int64())),
        (pa.array([1], pa.timestamp("ns")), pa.timestamp("us")),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
def test_a_value_that_does_not_fit_is_an_error_that_names_the_column(
    array: pa.Array, kind: Any
) -> None:
    batch = pa.record_batch([array], names=["the column"])
    with pytest.raises(UnsupportedType, match="the column"):
        conform(batch, pa.schema([("the column", kind)]))


def test_struct_fields_in_another_order_are_not_taken_for_each_other() -> None:
    batch = pa.record_batch([pa.array([{"low": 1, "high": 2}])], names=["c"])
    swapped = pa.struct([("high", pa.int64()), ("low", pa.int64())])
    with pytest.raises(UnsupportedType, match="another order"):
        conform(batch, pa.schema([("c", swapped)]))
