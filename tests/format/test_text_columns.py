"""Strings that are not UTF-8 keep their bytes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffq_spark.format.texts import array_of, as_binary, readable_rows, text_value


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@given(values=st.lists(st.none() | st.binary()))
def test_a_column_keeps_any_bytes(kind: pa.DataType, values: list[bytes | None]) -> None:
    array = array_of(values, kind)
    assert array.type == kind
    assert array.view(as_binary(kind)).to_pylist() == values


@given(st.binary())
def test_bytes_of_the_command_line_come_back(data: bytes) -> None:
    spelled = data.decode("utf-8", "surrogateescape")
    value = text_value(spelled)
    assert (value.encode() if isinstance(value, str) else value) == data


def test_binary_types_reach_every_depth() -> None:
    text = pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.large_string()))), ("n", pa.int64())])
    binary = pa.struct(
        [("m", pa.map_(pa.binary(), pa.list_(pa.large_binary()))), ("n", pa.int64())]
    )
    assert as_binary(text) == binary
    assert as_binary(pa.large_list(pa.string())) == pa.large_list(pa.binary())


def test_rows_show_what_is_not_text_as_escapes() -> None:
    names = array_of([b"a\xff", None], pa.string())
    nested = pa.StructArray.from_arrays([names], ["name"])
    lists = pa.ListArray.from_arrays([0, 1, 2], names)
    table = pa.table({"s": names, "nested": nested, "lists": lists, "n": [1, 2]})
    first, second = readable_rows(table)
    shown = "a\\xff"
    assert first == {"s": shown, "nested": {"name": shown}, "lists": [shown], "n": 1}
    assert second == {"s": None, "nested": {"name": None}, "lists": [None], "n": 2}
