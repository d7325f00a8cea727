"""Split the bytes of a part into Arrow streams of one batch each; large ones go to local disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from ffq_spark.errors import CorruptPart, FfqError
from ffq_spark.exchange.compute.spill import Spilled
from ffq_spark.exchange.read.checked_pieces import PIECE_BYTES, Bytes, take
from ffq_spark.format import frames
from ffq_spark.format.messages import MARKER, PREFIX, Description, describe


@dataclass(frozen=True)
class Stream:
    """The bytes of an Arrow stream, or of an FFQ frame around one."""

    data: pa.Buffer
    unpacked_bytes: int = 0
    """The bytes of its compressed buffers once they are decompressed."""
    spilled: Spilled | None = None


def split_streams(source: Bytes, limit: int, path: str) -> Iterator[Stream]:
    """Split a part into streams; a stream above `limit` bytes is spilled to local disk.

    >>> from ffq_spark.exchange.read.checked_pieces import HeldBytes
    >>> batch = pa.record_batch({"a": [1, 2]})
    >>> from ffq_spark.format.payload import Codec
    >>> codec = Codec(batch.schema, "arrow", "none")
    >>> part = HeldBytes(codec.stream(batch, batch), "part-0.ipc")
    >>> streams = split_streams(part, 100, "part-0.ipc")
    >>> [pa.ipc.open_stream(stream.data).read_all().num_rows for stream in streams]
    [2, 2]
    """
    if not source.left:
        return iter(())
    start = take(source, PREFIX.size)
    split = _frames if frames.is_framed(start) else _messages
    return split(source, start, limit, path)


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
            yield _stream(opening + start, source, described, limit, path)
        else:
            # The schema precedes every batch.
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
        raise CorruptPart("not a readable Arrow stream: a message has no body length", path=path)
    return described


def _stream(
    before: bytearray, source: Bytes, described: Description, limit: int, path: str
) -> Stream:
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
    try:
        unpacked = described.unpacked_bytes(memoryview(data)[len(before) :])
    except ValueError as error:
        raise CorruptPart(f"not a readable Arrow stream: {error}", path=path) from error
    return Stream(data, unpacked, spilled)


def _frames(source: Bytes, start: bytearray, limit: int, path: str) -> Iterator[Stream]:
    while True:
        header = start + take(source, frames.HEADER_BYTES - len(start))
        codec, length, size = frames.decode_header(header, path)
        body = source.pieces(size)
        if max(length, size) <= limit:
            yield Stream(pa.py_buffer(b"".join([header, *map(bytes, body)])))
        else:
            spilled = _unpacked(Spilled.of_pieces(body), codec, length, path)
            yield Stream(spilled.data, spilled=spilled)
        if not source.left:
            return
        start = take(source, PREFIX.size)


def _unpacked(body: Spilled, codec: str, length: int, path: str) -> Spilled:
    if codec == "none":
        return body
    try:
        spilled = Spilled.of_pieces(_inflated(body, codec))
    except FfqError:
        # An error of the disk, not of the bytes.
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptPart(f"not a readable {codec} frame: {error}", path=path) from error
    if len(spilled.data) != length:
        message = f"{len(spilled.data)} bytes in a frame of {length}"
        raise CorruptPart(message, path=path)
    return spilled


def _inflated(body: Spilled, codec: str) -> Iterator[bytes]:
    with pa.CompressedInputStream(pa.BufferReader(body.data), codec) as stream:
        while piece := stream.read(PIECE_BYTES):
            yield piece
            body.forget()
