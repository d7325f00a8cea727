"""Verify a part by the checksums that a version 2 index has for its frames."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import pyarrow as pa

from ffq_spark.errors import CorruptPart
from ffq_spark.format.index import Chunk


def check_chunks(data: pa.Buffer, chunks: Sequence[Chunk], path: str) -> None:
    """Compare every frame of a part with its checksum."""
    ChunkSums(chunks, len(data), path).update(data)


class ChunkSums:
    """Verifies the frames of a part that arrives in pieces. The chunks must cover the part.

    >>> chunk = Chunk(0, 3, 0, 0, 0, 0, zlib.adler32(b"abc"))
    >>> sums = ChunkSums([chunk], 3, "part-0.ipc")
    >>> sums.update(pa.py_buffer(b"ab"))
    >>> sums.update(pa.py_buffer(b"c"))
    """

    def __init__(self, chunks: Sequence[Chunk], size: int, path: str) -> None:
        position = 0
        for chunk in chunks:
            if chunk.offset_bytes != position or not 0 < chunk.frame_bytes <= size - position:
                raise CorruptPart("the index's chunks do not cover the file", path=path)
            position += chunk.frame_bytes
        if position != size:
            raise CorruptPart("the file is longer than the index's chunks", path=path)
        self._chunks = iter(chunks)
        self._path = path
        self._chunk: Chunk | None = None
        self._left = 0
        self._sum = 1

    def update(self, data: pa.Buffer) -> None:
        """Add the next bytes, and raise CorruptPart at the end of a frame that differs."""
        while len(data):
            if self._chunk is None:
                self._chunk, self._sum = next(self._chunks), 1
                self._left = self._chunk.frame_bytes
            piece, data = data[: self._left], data[self._left :]
            self._sum = zlib.adler32(piece, self._sum)
            self._left -= len(piece)
            if not self._left:
                if self._sum != self._chunk.checksum32:
                    place = self._chunk.offset_bytes
                    message = f"checksum mismatch in the frame at byte {place}"
                    raise CorruptPart(message, path=self._path)
                self._chunk = None
