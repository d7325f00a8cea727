"""The size of a batch counts values that repeat without repeating their bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from arrow_strategies import arrays, kinds
from hypothesis import given
from hypothesis import strategies as st

from ffq_spark.exchange.compute.plain_size import plain_size

LONG = "x" * 1_000


def size(array: pa.Array) -> int:
    return plain_size(pa.record_batch([array], ["a"]))


def long_view(count: int) -> pa.Array:
    """Return an array of views, all of the same text."""
    _, view, data = pa.array([LONG], pa.string_view()).buffers()
    buffers = [None, pa.py_buffer(view.to_pybytes() * count), data]
    return pa.Array.from_buffers(pa.string_view(), count, buffers)


def list_view(values: Any, count: int) -> pa.Array:
    offsets, sizes = pa.array([0] * count, pa.int32()), pa.array([len(values)] * count, pa.int32())
    return pa.ListViewArray.from_arrays(offsets, sizes, pa.array(values))


def dictionary(values: Any, count: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0, None] * (count // 2), pa.int8()), values)


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.nulls(50), 400),
        (pa.array([True] * 50), 400),
        (pa.array([], pa.string()), 0),
        (dictionary([LONG, "y"], 50), 25_000),
        (dictionary(pa.array([LONG.encode()], pa.large_binary()), 50), 25_000),
        (dictionary(pa.array([LONG], pa.string_view()), 50), 25_000),
        (dictionary(pa.array([7, 8]), 50), 400),
        (dictionary(pa.array([[1, 2, 3]]), 50), 50 * 32),
        (dictionary([LONG], 50).slice(10, 4), 2_000),
        (long_view(50), 50_000),
        (long_view(50).slice(40), 10_000),
        (pa.array([LONG, None, "y"], pa.string_view()), 1_001),
        (list_view([1, 2, 3], 50), 50 * 3 * 8),
        (pa.RunEndEncodedArray.from_arrays(pa.array([50]), pa.array([7])), 400),
        (pa.RunEndEncodedArray.from_arrays(pa.array([50]), pa.array([LONG])), 50 * 1_004),
        (pa.StructArray.from_arrays([long_view(50), pa.nulls(50)], ["a", "b"]), 50_400),
        (pa.ListArray.from_arrays(pa.array([0, 50], pa.int32()), long_view(50)), 50_008),
        (pa.FixedSizeListArray.from_arrays(pa.nulls(50), 10).slice(3, 1), 80),
        (pa.MapArray.from_arrays([0, 2], ["a", "b"], long_view(2)), 2_018),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
def test_repeated_values_count_each_time(array: pa.Array, expected: int) -> None:
    assert size(array) == pytest.approx(expected, abs=16)


@given(kinds().flatmap(arrays))
def test_a_plain_column_has_about_its_size(array: pa.Array) -> None:
    offsets = array.nbytes * 2 + len(array) * 8
    assert array.nbytes - len(array) <= size(array) + 64
    if not pa.types.is_null(array.type) and "null" not in str(array.type):
        assert size(array) <= offsets + 64


@given(st.lists(st.none() | st.text(max_size=20), min_size=1, max_size=30), st.data())
def test_an_encoded_column_is_as_large_as_the_plain_one(values: Any, data: st.DataObject) -> None:
    plain = pa.array(values, pa.string())
    start = data.draw(st.integers(0, len(values)))
    texts = sum(len(value.encode()) for value in values[start:] if value is not None)
    for encoded in (plain, plain.dictionary_encode(), plain.cast(pa.string_view())):
        got = size(encoded.slice(start))
        assert got >= max(texts, 8 * (len(values) - start))
        assert encoded is plain or got == max(texts, 8 * (len(values) - start))


def test_the_size_does_not_depend_on_what_a_null_view_holds() -> None:
    views = np.array([[1 << 30, 0, 0, 0], [1, ord("a"), 0, 0]], np.int32)
    buffers = [pa.py_buffer(b"\x02"), pa.py_buffer(views)]
    array = pa.Array.from_buffers(pa.string_view(), 2, buffers)
    array.validate(full=True)
    assert size(array) == 16
