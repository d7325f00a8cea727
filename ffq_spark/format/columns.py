"""The column directory of a part, for reading and verifying some columns without the others.

A large part ends with a batch without rows. Under `ffq.columns` the metadata of that batch holds
the length and the checksum of each piece of the part, in order: the schema, then the head and the
columns of each batch. Readers of the whole stream ignore it. The manifest holds the checksum of
this tail, so the commit protects the directory, and the directory protects each column.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import pyarrow as pa
import xxhash

from ffq_spark.format.messages import batch_head, metadata_value

KEY = b"ffq.columns"
LEAST_BATCH_BYTES = 128 << 10
"""A part gets no directory if its first batch is smaller: it is always read whole."""
_LEAST_COLUMN_BYTES = 1 << 10
MAX_TAIL_BYTES = 1 << 20
_ALIGNMENT = 8
_PAIR = struct.Struct("<QQ")
# Types whose buffers follow each other. Dictionaries, unions, views and runs do not qualify.
_CONTIGUOUS = (
    *(pa.types.is_primitive, pa.types.is_decimal, pa.types.is_fixed_size_binary),
    *(pa.types.is_string, pa.types.is_binary),
    *(pa.types.is_large_string, pa.types.is_large_binary),
    *(pa.types.is_struct, pa.types.is_map, pa.types.is_list),
    *(pa.types.is_large_list, pa.types.is_fixed_size_list),
)


def buffer_counts(schema: pa.Schema) -> list[int] | None:
    """Count the buffers that each column has in a batch; None if a type is not supported.

    >>> buffer_counts(pa.schema([("k", pa.int64()), ("names", pa.list_(pa.string()))]))
    [2, 5]
    """
    counts = [_buffer_count(field.type) for field in schema]
    supported = [count for count in counts if count is not None]
    return supported if len(supported) == len(counts) else None


def _buffer_count(kind: pa.DataType) -> int | None:
    if isinstance(kind, pa.BaseExtensionType):
        return _buffer_count(kind.storage_type)
    if pa.types.is_null(kind):
        return 0
    if not any(is_type(kind) for is_type in _CONTIGUOUS):
        return None
    children = [_buffer_count(kind.field(position).type) for position in range(kind.num_fields)]
    supported = [count for count in children if count is not None]
    return int(kind.num_buffers) + sum(supported) if len(supported) == len(children) else None


class ColumnDirectoryWriter:
    """Collects the column directory of one part while its messages are written."""

    def __init__(self, header: pa.Buffer, counts: Sequence[int]) -> None:
        self._counts = counts
        self._pairs = [_pair(memoryview(header))]

    @classmethod
    def of(
        cls, header: pa.Buffer, counts: Sequence[int] | None, first: pa.Buffer
    ) -> ColumnDirectoryWriter | None:
        """Return a writer for a part with this first batch, or None if the batch is too small."""
        if counts is None or len(counts) < 2:
            return None
        least = max(LEAST_BATCH_BYTES, _LEAST_COLUMN_BYTES * len(counts))
        return cls(header, counts) if len(first) >= least else None

    def add(self, message: pa.Buffer) -> bool:
        """Add the pieces of a batch; return False if Arrow wrote them in another order."""
        view = memoryview(message)
        try:
            ends = accumulate(_piece_lengths(view, self._counts), initial=0)
        except ValueError:
            return False
        self._pairs += [_pair(view[start:end]) for start, end in pairwise(ends)]
        return True

    def encode(self) -> dict[bytes, bytes]:
        """Encode the directory as metadata of the batch without rows."""
        packed = b"".join(_PAIR.pack(*pair) for pair in self._pairs)
        return {KEY: base64.b64encode(packed)}


def _pair(piece: memoryview) -> tuple[int, int]:
    return len(piece), xxhash.xxh3_64_intdigest(piece)


def _piece_lengths(message: memoryview, counts: Sequence[int]) -> list[int]:
    """Return the lengths of a batch's head and of the columns that follow it."""
    head = batch_head(message)
    if head.buffers != sum(counts):
        raise ValueError(f"the batch has {head.buffers} buffers instead of {sum(counts)}")
    offsets = struct.unpack_from(f"<{2 * head.buffers}q", message, head.buffers_at)[::2]
    bounds = [len(message) - head.length]
    first = head.buffers
    for count in reversed(counts):
        first -= count
        bounds.append(offsets[first] if count else bounds[-1])
    lengths = [end - start for start, end in pairwise(reversed(bounds))]
    if bounds[-1] or any(length < 0 or length % _ALIGNMENT for length in lengths):
        raise ValueError("the columns of the batch do not follow each other")
    return [head.length, *lengths]


@dataclass(frozen=True)
class ColumnDirectory:
    """The pieces of a part: the schema, then the head and the columns of each batch.

    Bounds and checksums are tuples, because a read decodes many small directories.
    """

    bounds: tuple[int, ...]
    """The start of the first piece, then the end of each piece, where the next one starts."""
    checksums: tuple[int, ...]
    columns: int

    @classmethod
    def decode(cls, tail: memoryview, columns: int, size: int) -> ColumnDirectory:
        """Decode the tail of a part of `size` bytes; raise ValueError if it does not fit it."""
        packed = base64.b64decode(metadata_value(tail, KEY), validate=True)
        count, rest = divmod(len(packed), _PAIR.size)
        if rest or count % (columns + 1) != 1:
            raise ValueError(f"{len(packed)} bytes are no column directory of {columns} columns")
        numbers = struct.unpack(f"<{2 * count}Q", packed)
        lengths = numbers[::2]
        directory = cls(tuple(accumulate(lengths, initial=0)), numbers[1::2], columns)
        if directory.bounds[-1] != size - len(tail) or any(n % _ALIGNMENT for n in lengths):
            raise ValueError("the column directory does not describe a part of this size")
        if not all(lengths[piece] for piece in (0, *directory.heads)):
            raise ValueError("the column directory has an empty schema or head")
        return directory

    @property
    def heads(self) -> range:
        """The positions of the pieces that are heads of batches."""
        return range(1, len(self.checksums), self.columns + 1)

    def pieces(self, columns: Sequence[int]) -> list[int]:
        """List the pieces to read for some columns: the schema, all heads, and these columns.

        Columns without bytes in a batch are left out.

        >>> directory = ColumnDirectory((0, 8, 16, 24, 32, 40, 48, 48), (0,) * 7, columns=2)
        >>> directory.pieces([1])
        [0, 1, 3, 4]
        """
        offsets = [0, *(1 + column for column in sorted(columns))]
        pieces = [head + offset for head in self.heads for offset in offsets]
        return [0, *(piece for piece in pieces if self.bounds[piece] < self.bounds[piece + 1])]

    def is_true(self, piece: int, data: memoryview) -> bool:
        """Return whether the data has the checksum of the piece."""
        return bool(xxhash.xxh3_64_intdigest(data) == self.checksums[piece])


def move_columns(
    head: memoryview, places: Sequence[int | None], body: int, counts: Sequence[int]
) -> None:
    """Rewrite the buffer offsets in the head of a batch, in place, for moved and missing columns.

    `places` holds the new offset of each column in the body, or None for a column that was not
    read; its buffers become empty. `body` is the length of the new body.
    """
    fields = batch_head(head)
    if fields.length != len(head) or fields.buffers != sum(counts):
        raise ValueError("the head of a batch does not fit the columns")
    form = struct.Struct(f"<{2 * fields.buffers}q")
    numbers = list(form.unpack_from(head, fields.buffers_at))
    first = 0
    for place, count in zip(places, counts, strict=True):
        end = first + 2 * count
        if place is None:
            numbers[first:end] = [0] * (end - first)
        elif count:
            moved = place - numbers[first]
            numbers[first:end:2] = [number + moved for number in numbers[first:end:2]]
        first = end
    try:
        form.pack_into(head, fields.buffers_at, *numbers)
    except struct.error as error:
        raise ValueError(f"a buffer's offset is out of range: {error}") from error
    struct.pack_into("<q", head, fields.body_length_at, body)
