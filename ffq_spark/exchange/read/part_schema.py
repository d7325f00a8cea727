"""Read the schema of a part from its first bytes, since a part may have any size."""

from __future__ import annotations

import io
import struct
from typing import Any

import pyarrow as pa

from ffq_spark.errors import CorruptPart, FfqError
from ffq_spark.exchange.read.fetch import fetch_range
from ffq_spark.exchange.read.part import Part
from ffq_spark.format import frames, payload
from ffq_spark.format.messages import MARKER, PREFIX
from ffq_spark.store import Store

# Bytes per request: most schemas are shorter.
_FETCHED = 64 << 10
# No schema is longer: a larger length is damage.
_LONGEST = 64 << 20


def part_schema(store: Store, part: Part) -> pa.Schema:
    """Read the schema that a part declares; it is verified when the rows are read."""
    path = store.url(part.file)
    try:
        return payload.decode_schema(pa.py_buffer(_first_message(store, part, path)), path)
    except FfqError:
        raise
    except (pa.ArrowException, OSError, struct.error) as error:
        raise CorruptPart(f"not a readable Arrow stream: {error}", path=path) from error


def _first_message(store: Store, part: Part, path: str) -> bytes:
    source: Any = io.BufferedReader(_Start(store, part), _FETCHED)
    start = source.read(PREFIX.size)
    if frames.is_framed(start):
        codec, _, _ = frames.decode_header(
            start + source.read(frames.HEADER_BYTES - len(start)), path
        )
        if codec != "none":
            source = pa.CompressedInputStream(pa.PythonFile(source, "r"), codec)
        start = source.read(PREFIX.size)
    marker, length = PREFIX.unpack(start) if len(start) == PREFIX.size else (0, 0)
    if marker != MARKER or not 0 < length <= _LONGEST:
        raise CorruptPart("not a readable Arrow stream: no schema", path=path)
    return bytes(start + source.read(length))


class _Start(io.RawIOBase):
    """A raw stream over the bytes of a part."""

    def __init__(self, store: Store, part: Part) -> None:
        self._store = store
        self._part = part
        self._position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part, position = self._part, self._position
        size = min(len(buffer), part.bytes - position)
        if size <= 0:
            return 0
        # A file that has grown is refused by the reader of its rows.
        data = fetch_range(self._store, part, position, size)[:size]
        buffer[: len(data)] = memoryview(data).cast("B")
        self._position += len(data)
        return len(data)
