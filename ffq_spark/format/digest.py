"""Compute a digest of rows that does not depend on their order or their batches.

Only values count. Offsets, dictionaries, runs, large and view variants of a type and the bytes
under a null do not change the digest. Floats are equal if Spark treats them as equal: -0.0 is 0.0,
and all NaNs are one value. The order of elements in lists and maps matters.

Step records store digests, so the digest of the same rows must never change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ffq_spark.format.hashing.key_types import is_bytes
from ffq_spark.format.hashing.words import Positions, fixed_words, numbers, validity

Longs = NDArray[np.uint64]

_MASK = (1 << 64) - 1
_BYTES = pa.large_binary()
_OTHER_BYTES = (pa.types.is_string_view, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
# Digits of pi, and of the golden ratio, whose multiples are spread evenly over 64 bits.
_START, _NULL = 0x243F6A8885A308D3, 0x13198A2E03707344
_STRIDE = 0x9E3779B97F4A7C15
# The arrays of one block stay in the processor's cache from one mixing step to the next.
_BLOCK_ROWS, _BLOCK_BYTES = 1 << 16, 4 << 20


@dataclass(frozen=True)
class Digest:
    """The number of rows, and the sum and the exclusive or of their 64-bit hashes.

    >>> rows = pa.record_batch({"k": [1, 2, 2], "v": ["a", None, ""]})
    >>> print(Digest.of(rows))
    3 rows, sum e0e122c1…, xor 6326f962…
    >>> Digest.of(rows.slice(1)) + Digest.of(rows.slice(0, 1)) == Digest.of(rows)
    True
    """

    rows: int = 0
    hash_sum: int = 0
    hash_xor: int = 0

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> Digest:
        """Compute the digest of a batch; it depends on column positions, not on names."""
        hashes = (_fold_columns(block.columns, block.num_rows) for block in _blocks(batch))
        digests = (cls(len(h), int(h.sum()), int(np.bitwise_xor.reduce(h))) for h in hashes)
        return sum(digests, cls())

    def __add__(self, other: Digest) -> Digest:
        """Return the digest of both sets of rows together."""
        total = (self.hash_sum + other.hash_sum) & _MASK
        return Digest(self.rows + other.rows, total, self.hash_xor ^ other.hash_xor)

    def __str__(self) -> str:
        return f"{self.rows} rows, sum {self.hash_sum >> 32:08x}…, xor {self.hash_xor >> 32:08x}…"


def plain(array: pa.Array) -> pa.Array:
    """Convert an array to one of five types: null, uint64, large_binary, a list or a struct.

    Two values are equal exactly if their converted values are equal. The children of lists and
    structs are not converted.

    >>> plain(pa.array([0.0, -0.0, None])).to_pylist()
    [0, 0, None]
    >>> plain(pa.array(["a", None]).dictionary_encode()).to_pylist()
    [b'a', None]
    """
    kind, types = array.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return plain(array.storage)
    if types.is_dictionary(kind):
        return plain(array.dictionary).take(array.indices)
    if types.is_run_end_encoded(kind):
        return plain(pc.run_end_decode(array))
    if types.is_union(kind):
        return _union_as_struct(array)
    if types.is_map(kind):
        return _map_as_list(array)
    if types.is_nested(kind) or types.is_null(kind):
        return array
    if is_bytes(kind) or any(is_kind(kind) for is_kind in _OTHER_BYTES):
        return array.cast(_BYTES)
    if kind.bit_width > 64:
        return _wide_as_struct(array)
    return _narrow_as_longs(array.cast(pa.float32()) if types.is_float16(kind) else array)


def lengths_of(array: pa.Array) -> Positions:
    """Return the number of bytes or elements of each value; 0 for a null.

    >>> lengths_of(pa.array([[1, 2], None, []])).tolist()
    [2, 0, 0]
    """
    measure = pc.binary_length if array.type == _BYTES else pc.list_value_length
    return numbers(measure(array).cast(pa.int64()).fill_null(0), np.int64)


def _narrow_as_longs(array: pa.Array) -> pa.Array:
    words = fixed_words(array) if len(array) else np.empty((0, 1), np.uint32)
    longs = words.view(np.uint64) if words.shape[1] == 2 else words.astype(np.uint64)
    valid = validity(array)
    return pa.array(longs[:, 0], mask=None if valid is None else ~valid)


def _wide_as_struct(array: pa.Array) -> pa.StructArray:
    words = numbers(array, np.dtype((np.uint64, array.type.bit_width // 64)))
    names = [str(position) for position in range(words.shape[1])]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays([pa.array(word) for word in words.T], names, mask=mask)


def _map_as_list(array: pa.MapArray) -> pa.ListArray:
    kind, buffers = pa.list_(array.values.type), array.buffers()[:2]
    return pa.Array.from_buffers(kind, len(array), buffers, -1, array.offset, [array.values])


def _union_as_struct(array: pa.UnionArray) -> pa.StructArray:
    """Convert a union to a struct of the type code and one column for each child.

    A child's column is null in the rows that belong to another child.
    """
    # For a slice, pyarrow's type_codes and offsets start before the slice.
    codes, places = numbers(array, np.int8), np.arange(len(array))
    if array.type.mode == "dense":
        places = np.frombuffer(array.buffers()[2], np.int32, len(array), 4 * array.offset)
    columns = {"code": pa.array(codes)}
    for child, code in enumerate(array.type.type_codes):
        columns[str(code)] = plain(array.field(child)).take(pa.array(places, mask=codes != code))
    return pa.StructArray.from_arrays(columns.values(), columns.keys())


def _blocks(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    fitting = batch.num_rows * _BLOCK_BYTES // max(batch.nbytes, 1)
    rows = min(max(fitting, 1), _BLOCK_ROWS)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _hashes(array: pa.Array) -> Longs:
    """Hash each value; values that fit into 64 bits are returned as they are, without mixing."""
    array = plain(array)
    kind = array.type
    if pa.types.is_null(kind):
        return np.full(len(array), _NULL, np.uint64)
    if pa.types.is_uint64(kind):
        hashes: Longs = numbers(array, np.uint64)
    elif pa.types.is_struct(kind):
        hashes = _fold_columns(array.flatten(), len(array))
    elif kind == _BYTES:
        hashes = _fold_bytes(array)
    else:
        lengths = lengths_of(array)
        hashes = _fold(_hashes(array.flatten()), lengths, lengths)
    valid = validity(array)
    return hashes if valid is None else np.where(valid, hashes, np.uint64(_NULL))


def _fold_columns(columns: Sequence[pa.Array], rows: int) -> Longs:
    hashes = np.full(rows, _START, np.uint64)
    for column in columns:
        _mix(np.add(hashes, _hashes(column), out=hashes))
    return hashes


def _fold_bytes(array: pa.Array) -> Longs:
    """Hash each value as words of eight bytes, with zeros appended to the last one."""
    lengths = lengths_of(array)
    zeros = pa.array([bytes(length) for length in range(8)], _BYTES)
    padding = zeros.take(pa.array(-lengths & 7))
    padded = pc.binary_join_element_wise(array, padding, pa.scalar(b"", _BYTES))
    counts = (lengths + 7) >> 3
    words = np.frombuffer(padded.buffers()[2] or b"", np.uint64, int(counts.sum()))
    return _fold(words, counts, lengths)


def _fold(parts: Longs, counts: Positions, lengths: Positions) -> Longs:
    """Hash each value from its consecutive parts, their positions in it and its length."""
    ends = np.cumsum(counts)
    starts = ends - counts
    places = (np.arange(len(parts)) - np.repeat(starts, counts)).view(np.uint64)
    mixed = _mix(parts + places * np.uint64(_STRIDE))
    # Differences of running sums are correct modulo 2**64, and 0 for a value without parts.
    sums = np.zeros(len(parts) + 1, np.uint64)
    np.cumsum(mixed, out=sums[1:])
    return _mix(sums[ends] - sums[starts] + lengths.view(np.uint64))


def _mix(values: Longs) -> Longs:
    """Apply the last steps of splitmix64, in place, so that each input bit affects all bits."""
    spare = np.empty_like(values)
    for bits, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        np.bitwise_xor(values, np.right_shift(values, bits, out=spare), out=values)
        np.multiply(values, factor, out=values)
    return np.bitwise_xor(values, np.right_shift(values, 31, out=spare), out=values)
