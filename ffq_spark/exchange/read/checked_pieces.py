"""Read a part in pieces: compare it with the manifest first, then read it again.

The first reading keeps a checksum of every piece. The second one compares each piece before it is
used, so a file that changes in between is an error before any changed byte is used.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import xxhash

from ffq_spark.errors import CorruptPart
from ffq_spark.exchange.read.fetch import fetch_range
from ffq_spark.exchange.read.part import Part, size_error
from ffq_spark.format.chunks import ChunkSums
from ffq_spark.store import Store

PIECE_BYTES = 256 << 10
_NOTHING: tuple[int, pa.Buffer] = (-1, pa.py_buffer(b""))


@dataclass(frozen=True)
class Checked:
    """The checksums of a part and of its pieces."""

    digest: int
    pieces: array[int]
    piece_bytes: int


def check_part(store: Store, part: Part, piece_bytes: int = PIECE_BYTES) -> Checked:
    """Read a part piece by piece and compare its size and checksums with the manifest."""
    path = store.url(part.file)
    sums = ChunkSums(part.chunks, part.bytes, path) if part.chunks else None
    whole, pieces = xxhash.xxh3_64(), array("Q")
    for start in range(0, part.bytes, piece_bytes):
        data = _piece(store, part, start, piece_bytes)
        whole.update(data)
        pieces.append(xxhash.xxh3_64_intdigest(data))
        if sums is not None:
            sums.update(data)
    digest = int(whole.intdigest())
    if part.checksum is not None and digest != part.checksum:
        raise CorruptPart("checksum mismatch", path=path)
    return Checked(digest, pieces, piece_bytes)


def _piece(store: Store, part: Part, start: int, piece_bytes: int) -> pa.Buffer:
    size = min(piece_bytes, part.bytes - start)
    data = fetch_range(store, part, start, size)
    if len(data) != size:
        raise size_error(part, store.url(part.file), is_short=len(data) < size)
    return data


class Bytes(Protocol):
    """A source of bytes that are taken in order."""

    left: int

    def pieces(self, size: int) -> Iterator[pa.Buffer]:
        """Return the next `size` bytes in pieces; raise CorruptPart at once if fewer are left."""
        ...


def take(source: Bytes, size: int) -> bytearray:
    """Return the next `size` bytes in one piece."""
    # This checks the size, which damage may have made too large for memory.
    pieces = source.pieces(size)
    data, position = bytearray(size), 0
    for piece in pieces:
        data[position : position + len(piece)] = memoryview(piece)
        position += len(piece)
    return data


class PartBytes:
    """The bytes of a checked part on storage, from `start` on."""

    def __init__(self, store: Store, part: Part, checked: Checked, start: int = 0) -> None:
        self._store = store
        self._part = part
        self._checked = checked
        self._position = start
        self._held = _NOTHING
        self.left = max(0, part.bytes - start)

    def pieces(self, size: int) -> Iterator[pa.Buffer]:
        if size > self.left:
            raise CorruptPart("the part ends inside a batch", path=self._store.url(self._part.file))
        self.left -= size
        return self._until(self._position + size)

    def _until(self, end: int) -> Iterator[pa.Buffer]:
        while self._position < end:
            number, start = divmod(self._position, self._checked.piece_bytes)
            data = self._same(number)[start : start + end - self._position]
            self._position += len(data)
            yield data

    def _same(self, number: int) -> pa.Buffer:
        if self._held[0] != number:
            # Released first, so that two pieces are never held.
            self._held = _NOTHING
            size = self._checked.piece_bytes
            data = _piece(self._store, self._part, number * size, size)
            if xxhash.xxh3_64_intdigest(data) != self._checked.pieces[number]:
                path = self._store.url(self._part.file)
                raise CorruptPart("the file changed while it was read", path=path)
            self._held = (number, data)
        return self._held[1]


class HeldBytes:
    """Bytes in memory.

    >>> held = HeldBytes(pa.py_buffer(b"abc"), "part-0.ipc")
    >>> bytes(take(held, 2)), held.left
    (b'ab', 1)
    """

    def __init__(self, data: pa.Buffer, path: str) -> None:
        self._data = data
        self._path = path
        self.left = len(data)

    def pieces(self, size: int) -> Iterator[pa.Buffer]:
        if size > self.left:
            raise CorruptPart("the part ends inside a batch", path=self._path)
        start = len(self._data) - self.left
        self.left -= size
        return iter((self._data[start : start + size],))
