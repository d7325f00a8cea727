"""Find the bytes of some columns of a part, and assemble them to a part with only these columns.

The result is again an Arrow stream: the schema, the head and the chosen columns of each
batch, and the tail. Heads refer to columns by their position, so they are changed to the new ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ffq_spark.errors import CorruptPart
from ffq_spark.exchange.read.part import Part, size_error
from ffq_spark.format.columns import ColumnDirectory, buffer_counts, move_columns
from ffq_spark.format.payload import checksum


@dataclass(frozen=True)
class Thrift:
    """The least savings for which fewer bytes are worth more requests."""

    enough: int
    least_half: int
    max_gap: int

    def pays(self, saved: Any, size: Any) -> Any:
        """Return whether leaving out `saved` bytes of a part pays; both may be arrays.

        >>> LOCAL.pays(300_000, 500_000), LOCAL.pays(300_000, 900_000)
        (True, False)
        """
        return (saved >= self.enough) | ((saved >= self.least_half) & (2 * saved >= size))


# The columns of a local part that is cached take as long as to read and verify 1 MiB more of it.
LOCAL = Thrift(enough=1 << 20, least_half=128 << 10, max_gap=4 << 10)
REMOTE = Thrift(enough=4 << 20, least_half=4 << 20, max_gap=256 << 10)


class ColumnSelection:
    """The columns of a read; decides for each part whether to read only them or the whole part.

    >>> schema = pa.schema([("k", pa.int64()), ("a", pa.int64()), ("b", pa.int32())])
    >>> sizes = {"bytes": [320_000, 3_200_000], "rows": [16_000, 160_000], "tail_bytes": [700, 700]}
    >>> ColumnSelection(schema, ["k", "b"], local=True).pays(pa.table(sizes)).tolist()
    [False, True]
    """

    def __init__(self, schema: pa.Schema, columns: Sequence[str], *, local: bool) -> None:
        self._counts = buffer_counts(schema)
        self._chosen = sorted({schema.get_field_index(name) for name in columns})
        self._thrift = LOCAL if local else REMOTE
        widths = [_most_bytes(f.type) for f in schema if f.name not in columns]
        self._row_bytes = None if None in widths else sum(width or 0 for width in widths)

    def pays(self, parts: pa.Table) -> NDArray[np.bool_]:
        """Return for each part whether skipping the other columns may save enough bytes."""
        if self._counts is None or len(self._chosen) == len(self._counts):
            return np.zeros(parts.num_rows, np.bool_)
        most = sizes = parts["bytes"].to_numpy()
        if self._row_bytes is not None:
            most = np.minimum(sizes, parts["rows"].to_numpy() * self._row_bytes)
        has_directory = parts["tail_bytes"].to_numpy() > 0
        pays: NDArray[np.bool_] = has_directory & self._thrift.pays(most, sizes)
        return pays

    def ranges(self, part: Part, tail: pa.Buffer, path: str, verify: str) -> ColumnRanges | None:
        """Plan what to request of a part, given its tail; None if that is almost all of it."""
        assert self._counts is not None
        directory = _directory(part, tail, len(self._counts), path, verify)
        pieces = directory.pieces(self._chosen)
        spans = _joined((directory.bounds[p : p + 2] for p in pieces), self._thrift.max_gap)
        saved = part.bytes - sum(end - start for start, end in spans)
        if not self._thrift.pays(saved, part.bytes):
            return None
        return ColumnRanges(part, spans, tail, directory, pieces, tuple(self._counts))


def _directory(
    part: Part, tail: pa.Buffer, columns: int, path: str, verify: str
) -> ColumnDirectory:
    if verify == "full" and checksum(tail) != part.tail_checksum:
        raise CorruptPart("checksum mismatch in the column directory", path=path)
    try:
        return ColumnDirectory.decode(memoryview(tail), columns, part.bytes)
    except ValueError as error:
        raise CorruptPart(f"not a readable column directory: {error}", path=path) from error


def check_directory(schema: pa.Schema, part: Part, data: pa.Buffer, path: str) -> None:
    """Compare the column directory of a whole part, if it has one, with the part's bytes."""
    if not part.tail_bytes:
        return
    tail = data[len(data) - part.tail_bytes :]
    directory = _directory(part, tail, len(schema), path, "full")
    for piece, (start, end) in enumerate(pairwise(directory.bounds)):
        if not directory.is_true(piece, memoryview(data)[start:end]):
            raise CorruptPart("the column directory describes other columns", path=path)


def _most_bytes(kind: pa.DataType) -> float | None:
    """Return the most bytes of a value with its validity, or None if a value may have any size."""
    try:
        return (int(kind.bit_width) + 1) / 8
    except ValueError:
        return None


def _joined(pieces: Iterable[tuple[int, ...]], max_gap: int) -> list[tuple[int, int]]:
    """Join ascending pieces to spans; a gap of at most `max_gap` bytes is read as well.

    >>> _joined([(0, 8), (8, 16), (40, 48)], max_gap=16)
    [(0, 16), (40, 48)]
    """
    spans: list[tuple[int, int]] = []
    for start, end in pieces:
        if spans and start - spans[-1][1] <= max_gap:
            spans[-1] = spans[-1][0], end
        else:
            spans.append((start, end))
    return spans


@dataclass(frozen=True)
class ColumnRanges:
    """The request of some columns of one part."""

    part: Part
    needed: list[tuple[int, int]]
    """Spans of the part's bytes, each from one position in the part to another."""
    tail: pa.Buffer
    directory: ColumnDirectory
    pieces: list[int]
    buffer_counts: tuple[int, ...]

    @property
    def length(self) -> int:
        """The bytes to request."""
        return sum(end - start for start, end in self.needed)

    @property
    def file(self) -> str:
        return self.part.file

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Start and length of each request in the file."""
        return [(self.part.offset + start, end - start) for start, end in self.needed]

    def assemble(self, buffers: list[pa.Buffer], path: str, verify: str) -> pa.Buffer:
        """Assemble a part of only the chosen columns from the bytes of all spans.

        `buffers` is emptied, so that the bytes are not held twice.
        """
        stream = np.empty(self.length + len(self.tail), np.uint8)
        position = 0
        for start, end in self.needed:
            data = buffers.pop(0)
            if len(data) != end - start:
                raise size_error(self.part, path, is_short=True)
            stream[position : position + len(data)] = np.frombuffer(data, np.uint8)
            position += len(data)
        stream[position:] = np.frombuffer(self.tail, np.uint8)
        places = self._places()
        if verify == "full":
            self._check(stream.data, places, path)
        try:
            self._move(stream.data, places, position)
        except ValueError as error:
            raise CorruptPart(f"not a readable batch: {error}", path=path) from error
        return pa.py_buffer(stream)

    def _places(self) -> dict[int, int]:
        """Return the position of each piece in the assembled part."""
        places: dict[int, int] = {}
        left_out, reached, spans = 0, 0, iter(self.needed)
        for piece in self.pieces:
            start = self.directory.bounds[piece]
            if start >= reached:
                first, last = next(spans)
                left_out += first - reached
                reached = last
            places[piece] = start - left_out
        return places

    def _check(self, stream: memoryview, places: Mapping[int, int], path: str) -> None:
        bounds = self.directory.bounds
        for piece, place in places.items():
            length = bounds[piece + 1] - bounds[piece]
            if not self.directory.is_true(piece, stream[place : place + length]):
                raise CorruptPart("checksum mismatch in a column", path=path)

    def _move(self, stream: memoryview, places: Mapping[int, int], end: int) -> None:
        """Change every head to the new positions of its columns."""
        bounds, heads = self.directory.bounds, self.directory.heads
        for head in heads:
            body = places[head] + bounds[head + 1] - bounds[head]
            following = places.get(head + heads.step, end)
            own = (places.get(head + 1 + column) for column in range(self.directory.columns))
            moved = [None if place is None else place - body for place in own]
            move_columns(stream[places[head] : body], moved, following - body, self.buffer_counts)
