"""Consolidate Z-sets: rows with an integer weight, whose sum is the number of times a row counts.

Two rows are the same row if all their other columns are equal in the sense of `format.digest`:
null equals null, every NaN is one value, -0.0 is 0.0, lists and maps count in their order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ffq_spark.errors import BadOption, Unsupported, UnsupportedType
from ffq_spark.format.digest import lengths_of, plain
from ffq_spark.format.hashing.words import numbers, validity
from ffq_spark.format.schemas import require_column

Words = NDArray[np.int64]

# Holds the sum of any number of 64-bit weights that fit in memory.
_EXACT = pa.decimal128(38, 0)


def check_weight(schema: pa.Schema, name: str) -> None:
    """Refuse a weight column that is missing or not a signed integer.

    >>> check_weight(pa.schema([("k", pa.string()), ("w", pa.int64())]), "w")
    >>> check_weight(pa.schema([("w", pa.float64())]), "w")
    Traceback (most recent call last):
    ...
    ffq_spark.errors.UnsupportedType: [FFQ_UNSUPPORTED_TYPE] column 'w' of type double cannot \
be a weight: it must be a signed integer (option weightColumn). Cast the column to a supported \
type, or leave it out
    """
    kind = require_column(schema, name, "weightColumn").type
    if not pa.types.is_signed_integer(kind):
        message = f"column {name!r} of type {kind} cannot be a weight: it must be a signed integer"
        raise UnsupportedType(message, option="weightColumn")


def consolidate(table: pa.Table, weight: str) -> pa.Table:
    """Return each row once, with the sum of its weights; leave out rows whose sum is 0.

    Of equal rows the first one is kept, with its position and its sign of zero.

    >>> rows = pa.table({"k": ["a", "b", "a", None], "w": [1, 1, -1, 2]})
    >>> consolidate(rows, "w").to_pylist()
    [{'k': 'b', 'w': 1}, {'k': None, 'w': 2}]
    """
    check_weight(table.schema, weight)
    weights = table[weight]
    if weights.null_count:
        message = f"column {weight!r} has {weights.null_count} nulls; each row needs a weight"
        raise BadOption(message, option="weightColumn")
    if not table.num_rows:
        return table
    summed = _sums(_row_words(table.drop_columns([weight])), weights)
    sums = _narrowed(summed["weight_sum"], table.schema.field(weight))
    kept = pc.not_equal(sums, 0)
    first = summed["at_min"].filter(kept)
    columns = [
        sums.filter(kept) if field.name == weight else _taken(column, first, field)
        for column, field in zip(table.columns, table.schema, strict=True)
    ]
    return pa.table(columns, schema=table.schema)


def _sums(words: Sequence[Words], weights: pa.ChunkedArray) -> pa.Table:
    """Return the first position and the exact sum of weights of each row, by first position."""
    names = [str(position) for position in range(len(words))]
    places = np.arange(len(weights))
    table = pa.table([*words, places, weights.cast(_EXACT)], [*names, "at", "weight"])
    groups = table.group_by(names, use_threads=False)
    # Arrow gives groups in an order that is only nearly that of their first rows.
    return groups.aggregate([("at", "min"), ("weight", "sum")]).sort_by("at_min")


def _narrowed(sums: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    try:
        return sums.cast(field.type)
    except pa.ArrowInvalid as error:
        limits = pc.min_max(sums)
        span = f"{limits['min']} to {limits['max']}"
        message = f"sums of {field.name!r} from {span} do not fit into {field.type}"
        raise Unsupported(message, option="weightColumn") from error


def _taken(column: pa.ChunkedArray, places: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    try:
        return column.take(places)
    except pa.ArrowNotImplementedError as error:
        message = f"column {field.name!r} of type {field.type} cannot be consolidated: {error}"
        raise UnsupportedType(message) from error


def _row_words(table: pa.Table) -> list[Words]:
    columns = [pa.concat_arrays([plain(c) for c in column.chunks]) for column in table.columns]
    return [word for column in columns for word in _words(column)]


def _words(array: pa.Array) -> list[Words]:
    """Return columns of numbers that are equal in two rows exactly if the values are.

    No hashes are compared: bytes are numbered by Arrow's dictionary, and a list becomes the bytes
    of its elements' numbers.
    """
    array = plain(array)
    kind = array.type
    if pa.types.is_null(kind):
        return []
    valid = validity(array)
    marks = [] if valid is None else [valid.astype(np.int64)]
    if pa.types.is_struct(kind):
        return [*marks, *(word for child in array.flatten() for word in _words(child))]
    if pa.types.is_uint64(kind):
        return [*marks, numbers(array.fill_null(0), np.int64)]
    if pa.types.is_nested(kind):
        array = _lists_as_bytes(array)
    return [*marks, _dictionary_places(array)]


def _lists_as_bytes(array: pa.Array) -> pa.Array:
    elements = array.flatten()
    # Elements that are always null still count.
    words = _words(elements) or [np.zeros(len(elements), np.int64)]
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum(lengths_of(array) * (8 * len(words)), out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.column_stack(words))]
    return pa.Array.from_buffers(pa.large_binary(), len(array), buffers)


def _dictionary_places(array: pa.Array) -> Words:
    indices = array.dictionary_encode().indices
    return numbers(indices.cast(pa.int64()).fill_null(0), np.int64)
