"""The directory of a part's columns, by which some of them are read and verified without the rest.

A part of some size ends with a batch without rows, whose metadata holds under `ffq.columns` a
length and a checksum of each piece that the part consists of, in their order: the schema, then for
each batch its head and its columns. A reader of streams passes it over. The manifest holds the
checksum of this tail, so what was committed vouches for the directory, and the directory for each
column.
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
"""A part whose first batch is smaller is read whole in any case, and has no directory."""
_LEAST_COLUMN_BYTES = 1 << 10
MAX_TAIL_BYTES = 1 << 20
_ALIGNMENT = 8
_PAIR = struct.Struct("<QQ")
# Types whose buffers lie one after the other: not dictionaries, unions, views and runs.
_KNOWN = (
    *(pa.types.is_primitive, pa.types.is_decimal, pa.types.is_fixed_size_binary),
    *(pa.types.is_string, pa.types.is_binary),
    *(pa.types.is_large_string, pa.types.is_large_binary),
    *(pa.types.is_struct, pa.types.is_map, pa.types.is_list),
    *(pa.types.is_large_list, pa.types.is_fixed_size_list),
)


def buffer_counts(schema: pa.Schema) -> list[int] | None:
    """How many buffers of a batch each column has; None if a type keeps some elsewhere.

    >>> buffer_counts(pa.schema([("k", pa.int64()), ("names", pa.list_(pa.string()))]))
    [2, 5]
    """
    counts = [_buffer_count(field.type) for field in schema]
    known = [count for count in counts if count is not None]
    return known if len(known) == len(counts) else None


def _buffer_count(kind: pa.DataType) -> int | None:
    if isinstance(kind, pa.BaseExtensionType):
        return _buffer_count(kind.storage_type)
    if pa.types.is_null(kind):
        return 0
    if not any(is_known(kind) for is_known in _KNOWN):
        return None
    inner = [_buffer_count(kind.field(position).type) for position in range(kind.num_fields)]
    known = [count for count in inner if count is not None]
    return int(kind.num_buffers) + sum(known) if len(known) == len(inner) else None


class ColumnDirectoryWriter:
    """Collects the directory of one part while its messages pass by."""

    def __init__(self, header: pa.Buffer, counts: Sequence[int]) -> None:
        self._counts = counts
        self._pairs = [_pair(memoryview(header))]

    @classmethod
    def of(
        cls, header: pa.Buffer, counts: Sequence[int] | None, first: pa.Buffer
    ) -> ColumnDirectoryWriter | None:
        """One for a part that begins with a batch, if it is worth it."""
        if counts is None or len(counts) < 2:
            return None
        least = max(LEAST_BATCH_BYTES, _LEAST_COLUMN_BYTES * len(counts))
        return cls(header, counts) if len(first) >= least else None

    def add(self, message: pa.Buffer) -> bool:
        """Note the pieces of a batch; False if this version of Arrow lays them out otherwise."""
        view = memoryview(message)
        try:
            ends = accumulate(_piece_lengths(view, self._counts), initial=0)
        except ValueError:
            return False
        self._pairs += [_pair(view[start:end]) for start, end in pairwise(ends)]
        return True

    def encode(self) -> dict[bytes, bytes]:
        """The metadata of the batch without rows."""
        packed = b"".join(_PAIR.pack(*pair) for pair in self._pairs)
        return {KEY: base64.b64encode(packed)}


def _pair(piece: memoryview) -> tuple[int, int]:
    return len(piece), xxhash.xxh3_64_intdigest(piece)


def _piece_lengths(message: memoryview, counts: Sequence[int]) -> list[int]:
    """The lengths of a batch's head and of its columns, which follow it in their order."""
    head = batch_head(message)
    if head.buffers != sum(counts):
        raise ValueError(f"{head.buffers} buffers instead of {sum(counts)}")
    places = struct.unpack_from(f"<{2 * head.buffers}q", message, head.buffers_at)[::2]
    bounds = [len(message) - head.length]
    first = head.buffers
    for count in reversed(counts):
        first -= count
        bounds.append(places[first] if count else bounds[-1])
    lengths = [end - start for start, end in pairwise(reversed(bounds))]
    if bounds[-1] or any(length < 0 or length % _ALIGNMENT for length in lengths):
        raise ValueError("the columns do not follow each other")
    return [head.length, *lengths]


@dataclass(frozen=True)
class ColumnDirectory:
    """The pieces of a part: the schema, then of each batch its head and its columns.

    Plain numbers: most parts have few pieces, of which many parts are looked at.
    """

    bounds: tuple[int, ...]
    """Where the first piece begins and where each ends, which is where the next one begins."""
    checksums: tuple[int, ...]
    columns: int

    @classmethod
    def decode(cls, tail: memoryview, columns: int, size: int) -> ColumnDirectory:
        """The directory in the tail of a part of `size` bytes; ValueError if it cannot be."""
        packed = base64.b64decode(metadata_value(tail, KEY), validate=True)
        count, rest = divmod(len(packed), _PAIR.size)
        if rest or count % (columns + 1) != 1:
            raise ValueError(f"a directory of {len(packed)} bytes with {columns} columns")
        numbers = struct.unpack(f"<{2 * count}Q", packed)
        lengths = numbers[::2]
        found = cls(tuple(accumulate(lengths, initial=0)), numbers[1::2], columns)
        if found.bounds[-1] != size - len(tail) or any(n % _ALIGNMENT for n in lengths):
            raise ValueError("a directory of another part")
        if not all(lengths[piece] for piece in (0, *found.heads)):
            raise ValueError("a directory without a schema or a head")
        return found

    @property
    def heads(self) -> range:
        """Which pieces are heads of batches; the columns of a batch follow its head."""
        return range(1, len(self.checksums), self.columns + 1)

    def pieces(self, columns: Sequence[int]) -> list[int]:
        """Those that some columns need: the schema, all heads, and of each batch these columns.

        A column may have no bytes in a batch; then there is nothing to need.

        >>> directory = ColumnDirectory((0, 8, 16, 24, 32, 40, 48, 48), (0,) * 7, columns=2)
        >>> directory.pieces([1])
        [0, 1, 3, 4]
        """
        each = [0, *(1 + column for column in sorted(columns))]
        found = [head + offset for head in self.heads for offset in each]
        return [0, *(piece for piece in found if self.bounds[piece] < self.bounds[piece + 1])]

    def is_true(self, piece: int, data: memoryview) -> bool:
        """Whether these are the bytes of a piece."""
        return bool(xxhash.xxh3_64_intdigest(data) == self.checksums[piece])


def move_columns(
    head: memoryview, places: Sequence[int | None], body: int, counts: Sequence[int]
) -> None:
    """Let the head of a batch find its columns where they lie now.

    `places` are those of the columns in the body, None for one that is not there, and `body` is how
    long that is. Nothing refers to a column that is not there.
    """
    found = batch_head(head)
    if found.length != len(head) or found.buffers != sum(counts):
        raise ValueError("a head of another batch")
    form = struct.Struct(f"<{2 * found.buffers}q")
    numbers = list(form.unpack_from(head, found.buffers_at))
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
        form.pack_into(head, found.buffers_at, *numbers)
    except struct.error as error:
        raise ValueError(f"buffers that lie nowhere: {error}") from error
    struct.pack_into("<q", head, found.body_length_at, body)
