"""Build the bytes that FFQ hashes for each row: a count, then a tag and a value for each key."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ffq_spark.format.hashing.key_types import is_bytes
from ffq_spark.format.hashing.siphash import Longs, siphash_rows
from ffq_spark.format.hashing.words import numbers

_BYTES = pa.large_binary()
_INT64, _FLOAT64, _BOOLEAN = 0, 1, 4
_UTF8, _UTF8_END, _NULL, _NOTHING = b"\x03", b"\xff", b"\x05", b""
_COUNT_BYTES = 8


# Created on first use, because pyarrow's first scalar imports pandas if it is installed.
@functools.cache
def _mark(value: bytes) -> pa.Scalar:
    return pa.scalar(value, _BYTES)


@functools.cache
def _padding() -> pa.Array:
    """Return the padding for each length modulo 256: zeros, then the length in the top byte."""
    return pa.array([bytes((7 - n) % 8) + bytes([n]) for n in range(256)], _BYTES)


def row_hashes(columns: Sequence[pa.Array]) -> Longs:
    """Compute the hash of each row, from columns of supported types and equal lengths.

    >>> row_hashes([pa.array([1, 42])]).tolist()
    [8650977268601103231, 6334931344243489526]
    """
    messages = _padded([_tagged(column) for column in columns])
    offsets = np.frombuffer(messages.buffers()[1], np.int64, len(messages) + 1) // 8
    words = np.frombuffer(messages.buffers()[2], np.uint64)
    # Every message starts with the number of columns. It is passed once instead of being stored.
    return siphash_rows(len(columns), words, offsets[:-1], np.diff(offsets))


def _padded(pieces: Sequence[pa.Array]) -> pa.Array:
    lengths = np.full(len(pieces[0]), _COUNT_BYTES)
    for piece in pieces:
        lengths += numbers(pc.binary_length(piece), np.int64)
    padding = _padding().take(pa.array(lengths & 0xFF))
    return pc.binary_join_element_wise(*pieces, padding, _mark(_NOTHING))


def _tagged(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_null(kind):
        return pa.repeat(_mark(_NULL), len(column))
    if is_bytes(kind):
        text = column.cast(pa.large_string()).cast(_BYTES)
        tagged = pc.binary_join_element_wise(_mark(_UTF8), text, _mark(_UTF8_END), _mark(_NOTHING))
    elif pa.types.is_boolean(kind):
        tagged = _fixed(_BOOLEAN, numbers(column.cast(pa.uint8()), np.uint8))
    elif pa.types.is_floating(kind):
        tagged = _fixed(_FLOAT64, numbers(column, f"f{kind.byte_width}").astype(np.float64))
    else:
        tagged = _fixed(_INT64, numbers(column, f"i{kind.byte_width}").astype(np.int64))
    return pc.if_else(column.is_valid(), tagged, _mark(_NULL)) if column.null_count else tagged


def _fixed(tag: int, values: NDArray[Any]) -> pa.Array:
    """Return the tag and the little-endian bytes of each value."""
    width = 1 + values.itemsize
    rows = np.empty((len(values), width), np.uint8)
    rows[:, 0] = tag
    rows[:, 1:] = values.view(np.uint8).reshape(len(values), -1)
    offsets = np.arange(0, rows.size + 1, width)
    return pa.Array.from_buffers(
        _BYTES, len(values), [None, pa.py_buffer(offsets), pa.py_buffer(rows)]
    )
