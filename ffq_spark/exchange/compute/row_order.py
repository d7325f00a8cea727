"""Compute the sorted order of rows, by passes over 64-bit numbers where columns have them.

A pass sorts numbers that hold a value above the row's place, which NumPy sorts in a fraction of the
time that a sort of places needs. Equal values keep their order, so passes over several numbers of
each row, the least significant first, sort by all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ffq_spark.format.ordering import sort_indices

Order = NDArray[np.int64]
Words = NDArray[Any]
"""Integers of any type, one for each row."""

_INTEGERS = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


def row_order(rows: pa.RecordBatch, by: Sequence[str]) -> Order:
    """Return the row numbers of a batch in sorted order; equal rows keep their order.

    >>> rows = pa.record_batch({"k": [2.0, None, -0.0, 0.0], "v": [8, 7, 6, 5]})
    >>> row_order(rows, ["k"]).tolist(), row_order(rows, ["k", "v"]).tolist()
    ([1, 2, 3, 0], [1, 3, 2, 0])
    """
    columns = [rows.column(name) for name in by]
    words: list[Words] = []
    for column in columns:
        own = _words(column)
        if own is None:
            order: Order = sort_indices(columns).to_numpy().astype(np.int64)
            return order
        words += own
    sorted_so_far: Order | None = None
    for key in reversed(words):
        sorted_so_far = _sorted_further(sorted_so_far, key)
    return np.arange(rows.num_rows) if sorted_so_far is None else sorted_so_far


def _sorted_further(order: Order | None, words: Words) -> Order | None:
    """Sort an order by the numbers of its rows; rows of equal numbers keep their places.

    None is the order in which the rows are.
    """
    least, greatest = (int(words.min()), int(words.max())) if len(words) else (0, 0)
    if least == greatest:
        return order
    values = words.astype(np.uint64)
    # Unsigned numbers wrap around, so the difference of any two 64-bit numbers fits.
    values -= np.uint64(least % (1 << 64))
    free_bits = 64 - (len(words) - 1).bit_length()
    if (greatest - least).bit_length() > free_bits:
        low_bits = values & np.uint64((1 << free_bits) - 1)
        order = _pass(order, low_bits, free_bits)
        values >>= np.uint64(free_bits)
    return _pass(order, values, free_bits)


def _pass(order: Order | None, values: NDArray[np.uint64], free_bits: int) -> Order:
    """Sort an order by numbers of at most `free_bits` bits, which leave room for their places.

    The numbers are overwritten: new memory of this size would take longer than the sort.
    """
    packed = values if order is None else values[order]
    packed <<= np.uint64(64 - free_bits)
    packed |= np.arange(len(packed), dtype=np.uint64)
    packed.sort()
    packed &= np.uint64((1 << (64 - free_bits)) - 1)
    places = packed.view(np.int64)
    return places if order is None else order[places]


def _words(column: pa.Array) -> list[Words] | None:
    """Return numbers whose order is the column's, the most significant first.

    Some types have none; they return None.
    """
    kind = column.type
    words: list[Words]
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        words = [_float_words(column.fill_null(0).to_numpy())]
    elif pa.types.is_boolean(kind):
        words = [column.fill_null(False).cast(pa.int8()).to_numpy()]
    elif pa.types.is_signed_integer(kind) or pa.types.is_temporal(kind):
        plain = _INTEGERS.get(kind.bit_width)
        if plain is None:
            return None
        words = [column.view(plain).fill_null(0).to_numpy()]
    else:
        return None
    if column.null_count:
        words.insert(0, column.is_valid().to_numpy(zero_copy_only=False).astype(np.int8))
    return words


def _float_words(values: NDArray[Any]) -> Words:
    """Return integers in the order of floats: -0.0 equals 0.0, and every NaN is the largest.

    >>> words = _float_words(np.array([np.nan, 1.0, 0.0, -0.0, -1.0]))
    >>> words.argsort(kind="stable").tolist(), bool(words[2] == words[3])
    ([4, 2, 3, 1, 0], True)
    """
    # Adding 0 turns -0.0 into 0.0.
    plain = np.where(np.isnan(values), np.array(np.nan, values.dtype), values) + 0
    bits = plain.view(np.dtype(f"i{values.dtype.itemsize}"))
    # The bits of negative floats grow as the floats become smaller.
    words: Words = np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)
    return words
