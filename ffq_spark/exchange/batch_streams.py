"""The bytes of a part cut into Arrow streams of a batch each; a large one goes to local disk."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa

from ffq_spark.errors import CorruptPart
from ffq_spark.exchange.part_file import PIECE_BYTES, Bytes, take
from ffq_spark.exchange.spill import Spilled
from ffq_spark.format import payload
from ffq_spark.format.messages import MARKER, PREFIX, Description, describe

Chunks = Sequence[Mapping[str, int]]


@dataclass(frozen=True)
class Stream:
    """An Arrow stream, or one of FFQ's frames around one, as bytes."""

    data: pa.Buffer
    unpacked_bytes: int = 0
    """What its buffers take in memory, if they are compressed."""
    spilled: Spilled | None = None


def cut(source: Bytes, limit: int, chunks: Chunks, path: str) -> Iterator[Stream]:
    """The streams of a part, of which those above `limit` bytes are never in memory.

    >>> from ffq_spark.exchange.part_file import HeldBytes
    >>> batch = pa.record_batch({"a": [1, 2]})
    >>> codec = payload.Codec(batch.schema, "arrow", "none")
    >>> part = HeldBytes(codec.stream(batch, batch), "part-0.ipc")
    >>> [pa.ipc.open_stream(s.data).read_all().num_rows for s in cut(part, 100, (), "part-0.ipc")]
    [2, 2]
    """
    if not source.left:
        return iter(())
    start = take(source, PREFIX.size)
    found = _frames(source, start, limit, chunks, path)
    return found if payload.is_framed(start) else _messages(source, start, limit, path)


def _messages(source: Bytes, start: bytearray, limit: int, path: str) -> Iterator[Stream]:
    opening = bytearray()
    while True:
        marker, length = PREFIX.unpack(start)
        if marker != MARKER or length < 0:
            raise CorruptPart("not a readable Arrow stream: no message", path=path)
        if not length:
            return
        start += take(source, length)
        described = _described(bytes(start[PREFIX.size :]), path)
        if described.is_batch:
            yield _stream(opening + start, source, described, limit)
        else:
            # The schema, without which no batch can be read.
            opening += start + take(source, described.body_bytes)
        if not source.left:
            return
        start = take(source, PREFIX.size)


def _described(data: bytes, path: str) -> Description:
    try:
        described = describe(data)
    except ValueError as error:
        raise CorruptPart(f"not a readable Arrow stream: {error}", path=path) from error
    if described.body_bytes < 0:
        raise CorruptPart("not a readable Arrow stream: no length", path=path)
    return described


def _stream(before: bytearray, source: Bytes, described: Description, limit: int) -> Stream:
    size, body = len(before) + described.body_bytes, source.pieces(described.body_bytes)
    if size > limit:
        spilled = Spilled.of_pieces(chain([before], body))
        data = spilled.data
    else:
        spilled, joined = None, before + bytearray(described.body_bytes)
        place = len(before)
        for piece in body:
            joined[place : place + len(piece)] = memoryview(piece)
            place += len(piece)
        data = pa.py_buffer(joined)
    unpacked = described.unpacked_bytes(memoryview(data)[len(before) :]) if described.packed else 0
    return Stream(data, unpacked, spilled)


def _frames(
    source: Bytes, start: bytearray, limit: int, chunks: Chunks, path: str
) -> Iterator[Stream]:
    expected = iter(chunks)
    while True:
        header = start + take(source, payload.FRAME.size - len(start))
        codec, length, size = payload.frame(header, path)
        chunk = next(expected, None)
        checksum = _Checksum(header)
        body = (checksum.count(piece) for piece in source.pieces(size))
        if max(length, size) <= limit:
            stream = Stream(pa.py_buffer(b"".join([header, *map(bytes, body)])))
        else:
            spilled = _unpacked(Spilled.of_pieces(body), codec, length, path)
            stream = Stream(spilled.data, spilled=spilled)
        if chunk is not None and checksum.value != chunk["checksum32"]:
            raise CorruptPart("checksum mismatch in a frame", path=path)
        yield stream
        if not source.left:
            return
        start = take(source, PREFIX.size)


class _Checksum:
    """What a version 2 index says of a frame, counted while its pieces pass by."""

    def __init__(self, start: bytearray) -> None:
        self.value = zlib.adler32(start)

    def count(self, piece: Any) -> Any:
        self.value = zlib.adler32(piece, self.value)
        return piece


def _unpacked(body: Spilled, codec: str, length: int, path: str) -> Spilled:
    if codec == "none":
        return body
    try:
        found = Spilled.of_pieces(_inflated(body, codec))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptPart(f"not a readable {codec} frame: {error}", path=path) from error
    if len(found.data) != length:
        told = f"{len(found.data)} bytes in a frame of {length}"
        raise CorruptPart(told, path=path)
    return found


def _inflated(body: Spilled, codec: str) -> Iterator[bytes]:
    with pa.CompressedInputStream(pa.BufferReader(body.data), codec) as stream:
        while piece := stream.read(PIECE_BYTES):
            yield piece
            body.forget()
