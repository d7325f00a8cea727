"""FFQ's frames (`payload=ffqs`): a header, then one Arrow IPC stream that may be compressed."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from ffq_spark.errors import CorruptPart

CODECS = ("none", "lz4", "zstd")
_MAGIC = b"FFQS"
_VERSION = 1
# Magic, version, codec, length of the stream, length of the body.
_HEADER = struct.Struct("<4sBB2xQQ")
HEADER_BYTES = _HEADER.size


class FrameHeader(NamedTuple):
    """The codec of a frame, and the lengths of its stream and of the body that follows."""

    codec: str
    stream_bytes: int
    body_bytes: int


def encode(stream: pa.Buffer, codec: str) -> bytes:
    """Encode a stream as one frame.

    >>> decode_header(encode(pa.py_buffer(b"stream"), "none")[:HEADER_BYTES], "part-0.ipc")
    FrameHeader(codec='none', stream_bytes=6, body_bytes=6)
    """
    body = stream if codec == "none" else pa.compress(stream, codec=codec)
    header = _HEADER.pack(_MAGIC, _VERSION, CODECS.index(codec), len(stream), len(body))
    return header + bytes(body)


def is_framed(data: pa.Buffer | bytearray) -> bool:
    """Return whether a part consists of frames, by its first four bytes."""
    return bytes(data[:4]) == _MAGIC


def is_compressed(data: pa.Buffer) -> bool:
    """Return whether the first frame of a part is compressed; False if its header is truncated."""
    return len(data) > HEADER_BYTES and bool(_HEADER.unpack_from(data)[2])


def decode_header(
    data: pa.Buffer | bytes | bytearray, path: str, position: int | None = None
) -> FrameHeader:
    """Decode and check the frame header at a position of a part, by default its first bytes."""
    place = "" if position is None else f" at byte {position}"
    magic, version, codec, stream_bytes, body_bytes = _HEADER.unpack_from(data, position or 0)
    if magic != _MAGIC or version != _VERSION or codec >= len(CODECS):
        raise CorruptPart(f"no frame of a known kind{place}", path=path)
    return FrameHeader(CODECS[codec], stream_bytes, body_bytes)


def decode(data: pa.Buffer, path: str) -> Iterator[pa.Buffer]:
    """Yield the streams of all frames of a part, decompressed.

    >>> part = encode(pa.py_buffer(b"one"), "lz4") + encode(pa.py_buffer(b"2"), "none")
    >>> [bytes(stream) for stream in decode(pa.py_buffer(part), "part-0.ipc")]
    [b'one', b'2']
    """
    position = 0
    while position < len(data):
        if len(data) - position < HEADER_BYTES:
            raise CorruptPart(f"a frame header is cut at byte {position}", path=path)
        header = decode_header(data, path, position)
        start = position + HEADER_BYTES
        if start + header.body_bytes > len(data):
            raise CorruptPart(f"the frame at byte {position} is cut", path=path)
        position = start + header.body_bytes
        body = data[start:position]
        yield body if header.codec == "none" else _decompress(body, header, path)


def _decompress(body: pa.Buffer, header: FrameHeader, path: str) -> pa.Buffer:
    try:
        return pa.decompress(body, decompressed_size=header.stream_bytes, codec=header.codec)
    except (pa.ArrowException, OSError, OverflowError) as error:
        raise CorruptPart(f"not a readable {header.codec} frame: {error}", path=path) from error
