"""Convert Arrow columns to the numbers and bytes that a hash consumes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

Words = NDArray[np.uint32]
Positions = NDArray[np.int64]

_LONG_DIGITS = 18
# A word is read as two aligned words, and the second may begin after the last byte.
_PADDING = 8


class ByteRanges(NamedTuple):
    """Byte strings inside one padded, word-aligned buffer."""

    data: NDArray[np.uint8]
    starts: Positions
    lengths: Positions


def validity(array: pa.Array) -> NDArray[np.bool_] | None:
    """Return which slots hold a value, or None if all do.

    >>> validity(pa.array([1, None])).tolist()
    [True, False]
    """
    if array.null_count == 0:
        return None
    valid: NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


def numbers(array: pa.Array, dtype: DTypeLike) -> NDArray[Any]:
    """Return the values of a fixed-width column without a copy; null slots have any value.

    >>> numbers(pa.array([1, 2, 3], pa.int16()).slice(1), np.int16).tolist()
    [2, 3]
    """
    width = np.dtype(dtype)
    values = array.buffers()[1]
    if values is None:
        return np.zeros(len(array), width)
    return np.frombuffer(values, width, len(array), array.offset * width.itemsize)


def fixed_words(array: pa.Array) -> Words:
    """Return one row of one or two 32-bit words for each value, as Spark hashes it.

    >>> fixed_words(pa.array([-1, 7], pa.int8())).tolist()
    [[4294967295], [7]]
    >>> fixed_words(pa.array([-1.0, -0.0])).tolist()
    [[0, 3220176896], [0, 0]]
    """
    kind = array.type
    if pa.types.is_boolean(kind):
        return _narrow(numbers(array.cast(pa.uint8()), np.uint8))
    if pa.types.is_float32(kind):
        return _float_bits(numbers(array, np.float32), np.uint32, 0x7FC00000)
    if pa.types.is_float64(kind):
        return _float_bits(numbers(array, np.float64), np.uint64, 0x7FF8000000000000)
    if pa.types.is_decimal128(kind):
        return numbers(array, np.dtype((np.uint32, 4)))[:, :2]
    if kind.byte_width == 8:
        return numbers(array, np.dtype((np.uint32, 2)))
    return _narrow(numbers(array, f"i{kind.byte_width}"))


def is_wide_decimal(kind: pa.DataType) -> bool:
    """Return whether Spark hashes this decimal type as bytes and not as a 64-bit number."""
    return bool(pa.types.is_decimal128(kind) and kind.precision > _LONG_DIGITS)


def spans(array: pa.Array) -> tuple[Positions, Positions]:
    """Return the start and length of each value of a list or byte column; nulls have length 0.

    >>> [part.tolist() for part in spans(pa.array(["ab", None, "c"]))]
    [[0, 2, 2], [2, 0, 1]]
    """
    large = array.type.id in _LARGE_TYPES
    width = np.dtype(np.int64 if large else np.int32)
    buffer = array.buffers()[1]
    offsets = np.frombuffer(buffer, width, len(array) + 1, array.offset * width.itemsize)
    starts = offsets[:-1].astype(np.int64)
    lengths = offsets[1:] - starts
    valid = validity(array)
    if valid is not None:
        lengths *= valid
    return starts, lengths


def text_bytes(array: pa.Array) -> ByteRanges:
    """Return the bytes of each string or binary value.

    >>> text_bytes(pa.array(["ab", "cde"])).lengths.tolist()
    [2, 3]
    """
    starts, lengths = spans(array)
    buffer = array.buffers()[2]
    first, end = int(starts[0]), int(starts[-1] + lengths[-1])
    data = np.zeros((end - first + _PADDING + 3) // 4 * 4, np.uint8)
    if buffer is not None:
        data[: end - first] = np.frombuffer(buffer, np.uint8)[first:end]
    starts -= first
    return ByteRanges(data, starts, lengths)


def decimal_bytes(array: pa.Array) -> ByteRanges:
    """Return the unscaled values as the shortest big-endian two's complement bytes.

    >>> ranges = decimal_bytes(pa.array([-1, 128]).cast(pa.decimal128(20, 0)))
    >>> ranges.lengths.tolist(), ranges.data[14:16].tolist(), ranges.data[30:32].tolist()
    ([1, 2], [255, 255], [0, 128])
    """
    halves = numbers(array, np.dtype((np.uint64, 2)))
    # Flip the bits of negative numbers: the highest remaining bit then determines the length.
    sign = (halves[:, 1].view(np.int64) >> 63).view(np.uint64)
    low, high = halves[:, 0] ^ sign, halves[:, 1] ^ sign
    lengths = np.ones(len(array), np.int64)
    for bits in range(7, 64, 8):
        lengths += (high != 0) | (low >> np.uint64(bits) != 0)
        lengths += high >> np.uint64(bits) != 0
    data = np.zeros(16 * len(array) + _PADDING, np.uint8)
    data[:-_PADDING].reshape(-1, 16)[:] = halves.view(np.uint8)[:, ::-1]
    starts = np.arange(16, 16 * len(array) + 1, 16) - lengths
    return ByteRanges(data, starts, lengths)


_LARGE_TYPES = frozenset({pa.large_string().id, pa.large_binary().id, pa.large_list(pa.null()).id})


def _narrow(values: NDArray[Any]) -> Words:
    return values.astype(np.int32).view(np.uint32).reshape(-1, 1)


def _float_bits(values: NDArray[Any], dtype: type[np.unsignedinteger[Any]], nan: int) -> Words:
    bits = values.view(dtype).copy()
    bits[values == 0] = 0
    bits[np.isnan(values)] = nan
    return bits.view(np.uint32).reshape(len(values), -1)
