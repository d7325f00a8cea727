"""Which bytes of a part some of its columns need, and how they become a part of just those.

What is put together is again a stream: the schema, of each batch its head and the columns that were
asked for, and the tail. Heads refer to columns by their place, so they are told the new ones.
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
from ffq_spark.format.columns import Directory, buffer_counts, move_columns
from ffq_spark.format.payload import checksum


@dataclass(frozen=True)
class Thrift:
    """When fewer bytes are worth more requests: if so many are saved, or half of the part."""

    enough: int
    least_half: int
    max_gap: int

    def pays(self, saved: Any, size: Any) -> Any:
        """Whether to leave out so many bytes of a part, or of each of many.

        >>> LOCAL.pays(300_000, 500_000), LOCAL.pays(300_000, 900_000)
        (True, False)
        """
        return (saved >= self.enough) | ((saved >= self.least_half) & (2 * saved >= size))


# The columns of a local part that is cached take as long as to read and verify 1 MiB more of it.
LOCAL = Thrift(enough=1 << 20, least_half=128 << 10, max_gap=4 << 10)
REMOTE = Thrift(enough=4 << 20, least_half=4 << 20, max_gap=256 << 10)


class Selection:
    """Some columns of an exchange, and of which parts they are read without the others.

    >>> schema = pa.schema([("k", pa.int64()), ("a", pa.int64()), ("b", pa.int32())])
    >>> sizes = {"bytes": [320_000, 3_200_000], "rows": [16_000, 160_000], "tail_bytes": [700, 700]}
    >>> Selection(schema, ["k", "b"], local=True).pays(pa.table(sizes)).tolist()
    [False, True]
    """

    def __init__(self, schema: pa.Schema, columns: Sequence[str], *, local: bool) -> None:
        self._counts = buffer_counts(schema)
        self._chosen = sorted({schema.get_field_index(name) for name in columns})
        self._thrift = LOCAL if local else REMOTE
        widths = [_most_bytes(f.type) for f in schema if f.name not in columns]
        self._row_bytes = None if None in widths else sum(width or 0 for width in widths)

    @property
    def _is_some(self) -> bool:
        return self._counts is not None and len(self._chosen) < len(self._counts)

    def pays(self, parts: pa.Table) -> NDArray[np.bool_]:
        """For each part whether enough of its bytes may belong to other columns."""
        if not self._is_some:
            return np.zeros(parts.num_rows, np.bool_)
        most = sizes = parts["bytes"].to_numpy()
        if self._row_bytes is not None:
            most = np.minimum(sizes, parts["rows"].to_numpy() * self._row_bytes)
        has_directory = parts["tail_bytes"].to_numpy() > 0
        found: NDArray[np.bool_] = has_directory & self._thrift.pays(most, sizes)
        return found

    def ranges(
        self, part: dict[str, Any], tail: pa.Buffer, path: str, verify: str
    ) -> ColumnRanges | None:
        """What to ask for of a part, given its tail; None if that is almost all of it."""
        assert self._counts is not None
        directory = _directory(part, tail, len(self._counts), path, verify)
        pieces = directory.pieces(self._chosen)
        spans = _joined((directory.bounds[p : p + 2] for p in pieces), self._thrift.max_gap)
        saved = part["bytes"] - sum(end - start for start, end in spans)
        if not self._thrift.pays(saved, part["bytes"]):
            return None
        return ColumnRanges(part, spans, tail, directory, pieces, tuple(self._counts))


def _directory(
    part: dict[str, Any], tail: pa.Buffer, columns: int, path: str, verify: str
) -> Directory:
    if verify == "full" and checksum(tail) != part["tail_checksum"]:
        raise CorruptPart("checksum mismatch in the directory of columns", path=path)
    try:
        return Directory.decode(memoryview(tail), columns, part["bytes"])
    except ValueError as error:
        raise CorruptPart(f"no directory of columns: {error}", path=path) from error


def check_directory(schema: pa.Schema, part: dict[str, Any], data: pa.Buffer, path: str) -> None:
    """Compare the directory of a whole part, if it has one, with the pieces that it tells of."""
    if not part["tail_bytes"]:
        return
    tail = data[len(data) - part["tail_bytes"] :]
    directory = _directory(part, tail, len(schema), path, "full")
    for piece, (start, end) in enumerate(pairwise(directory.bounds)):
        if not directory.is_true(piece, memoryview(data)[start:end]):
            raise CorruptPart("the directory tells of other columns", path=path)


def _most_bytes(kind: pa.DataType) -> float | None:
    """What a value and its validity take at most, if that is known."""
    try:
        return (int(kind.bit_width) + 1) / 8
    except ValueError:
        return None


def _joined(pieces: Iterable[tuple[int, ...]], max_gap: int) -> list[tuple[int, int]]:
    """Pieces in their order as few spans: small gaps between them are read over.

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
    """What a read of some columns asks for of one part."""

    part: dict[str, Any]
    spans: list[tuple[int, int]]
    """Bytes of the part, each from one place to another."""
    tail: pa.Buffer
    directory: Directory
    pieces: list[int]
    buffer_counts: tuple[int, ...]

    @property
    def length(self) -> int:
        """How many bytes are asked for."""
        return sum(end - start for start, end in self.spans)

    def stream(self, fetched: Iterable[pa.Buffer], path: str, verify: str) -> pa.Buffer:
        """The part without the other columns, from the bytes of all spans."""
        stream = np.empty(self.length + len(self.tail), np.uint8)
        position = 0
        for (start, end), data in zip(self.spans, fetched, strict=True):
            if len(data) != end - start:
                told = f"fewer bytes instead of {self.part['bytes']}"
                raise CorruptPart(told, path=path)
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
        """Where each piece lies in what is put together."""
        places: dict[int, int] = {}
        left_out, reached, spans = 0, 0, iter(self.spans)
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
        """Let every head find its columns at their new places."""
        bounds, heads = self.directory.bounds, self.directory.heads
        for head in heads:
            body = places[head] + bounds[head + 1] - bounds[head]
            following = places.get(head + heads.step, end)
            own = (places.get(head + 1 + column) for column in range(self.directory.columns))
            moved = [None if place is None else place - body for place in own]
            move_columns(stream[places[head] : body], moved, following - body, self.buffer_counts)
