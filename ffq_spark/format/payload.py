"""The bytes of a part: one Arrow IPC stream (`arrow`), or FFQ's frames around streams (`ffqs`).

Encoders return pieces that the writer concatenates, so a part of any size is written without being
held in memory. Decoders take the whole part.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, TypeAlias

import pyarrow as pa
import xxhash

from ffq_spark.errors import CorruptPart
from ffq_spark.format import frames
from ffq_spark.format.columns import MAX_TAIL_BYTES, ColumnDirectoryWriter, buffer_counts
from ffq_spark.format.index import Chunk
from ffq_spark.format.messages import PREFIX, describe

Piece: TypeAlias = "bytes | pa.Buffer"

_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"


@dataclass
class PartTotals:
    """The sizes and the checksum of one part, counted while its pieces are encoded.

    This is the only place where a part's bytes are counted. The index, the manifest and, as a sum
    over the manifest, the step record copy them; a read compares the file with the manifest.
    """

    bytes: int = 0
    rows: int = 0
    batches: int = 0
    compressed_bytes: int = 0
    uncompressed_bytes: int = 0
    tail_bytes: int = 0
    tail_checksum: int = 0
    """The checksum of the last `tail_bytes`, if they are a column directory."""
    chunks: list[Chunk] = field(default_factory=list)
    _digest: xxhash.xxh3_64 = field(default_factory=xxhash.xxh3_64)

    def count(self, piece: Piece) -> Piece:
        """Add a piece to the totals and return it."""
        self.bytes += len(piece)
        self._digest.update(piece)
        return piece

    @property
    def checksum(self) -> int:
        return self._digest.intdigest()


class PartEncoder(Protocol):
    """Encodes the batches of one part as pieces, and counts them."""

    totals: PartTotals

    def start(self) -> Piece: ...

    def batch(self, batch: pa.RecordBatch) -> Piece: ...

    def end(self) -> Piece: ...


class Codec:
    """The encoding that all parts of one task share: schema, payload and compression.

    >>> schema = pa.schema([("k", pa.int64())])
    >>> encoder = Codec(schema, "arrow", "none").encoder()
    >>> batch = pa.record_batch([[1, 2]], schema=schema)
    >>> part = b"".join([encoder.start(), encoder.batch(batch), encoder.end()])
    >>> pa.ipc.open_stream(part).read_all().num_rows
    2
    """

    def __init__(self, schema: pa.Schema, payload: str, compression: str) -> None:
        self.schema = schema
        self.payload = payload
        self.compression = compression
        self._buffers = compression if payload == "arrow" and compression != "none" else None
        self._options = pa.ipc.IpcWriteOptions(compression=self._buffers)
        self.header = self.stream()[: -len(_END)]
        self.buffer_counts = buffer_counts(schema)

    def encoder(self) -> PartEncoder:
        return StreamEncoder(self) if self.payload == "arrow" else FrameEncoder(self)

    def stream(self, *batches: pa.RecordBatch) -> pa.Buffer:
        """Encode batches as a complete IPC stream."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.schema, options=self._options) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return sink.getvalue()

    def message(self, batch: pa.RecordBatch) -> pa.Buffer:
        """Encode one batch as its message inside a stream."""
        if self._buffers is None:
            # serialize() allocates the exact size once; a stream's buffer grows by copies.
            return batch.serialize()
        stream = self.stream(batch)
        return stream[len(self.header) : len(stream) - len(_END)]

    @cached_property
    def _no_rows(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([], self.schema)

    def tail(self, directory: ColumnDirectoryWriter) -> pa.Buffer:
        """Encode the end of a part that has a column directory."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.schema, options=self._options) as writer:
            writer.write_batch(self._no_rows, custom_metadata=directory.encode())
        return sink.getvalue()[len(self.header) :]


class StreamEncoder:
    """Encodes `payload=arrow`: schema, batches, a column directory for large parts, end marker."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._directory: ColumnDirectoryWriter | None = None
        self.totals = PartTotals()

    def start(self) -> Piece:
        return self.totals.count(self._codec.header)

    def batch(self, batch: pa.RecordBatch) -> Piece:
        codec, message = self._codec, self._codec.message(batch)
        if not self.totals.batches:
            self._directory = ColumnDirectoryWriter.of(codec.header, codec.buffer_counts, message)
        if self._directory is not None and not self._directory.add(message):
            self._directory = None
        self.totals.rows += batch.num_rows
        self.totals.batches += 1
        return self.totals.count(message)

    def end(self) -> Piece:
        tail = None if self._directory is None else self._codec.tail(self._directory)
        if tail is None or len(tail) > MAX_TAIL_BYTES:
            return self.totals.count(_END)
        self.totals.tail_bytes = len(tail)
        self.totals.tail_checksum = checksum(tail)
        self.totals.batches += 1
        return self.totals.count(tail)


class FrameEncoder:
    """Encodes `payload=ffqs`: one frame per batch."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self.totals = PartTotals()

    def start(self) -> Piece:
        return b""

    def batch(self, batch: pa.RecordBatch) -> Piece:
        stream = self._codec.stream(batch)
        frame = frames.encode(stream, self._codec.compression)
        body_bytes = len(frame) - frames.HEADER_BYTES
        totals = self.totals
        totals.chunks.append(
            Chunk(
                offset_bytes=totals.bytes,
                frame_bytes=len(frame),
                compressed_bytes=body_bytes,
                uncompressed_bytes=len(stream),
                rows=batch.num_rows,
                batches=1,
                checksum32=zlib.adler32(frame),
            )
        )
        totals.rows += batch.num_rows
        totals.batches += 1
        totals.compressed_bytes += body_bytes
        totals.uncompressed_bytes += len(stream)
        return totals.count(frame)

    def end(self) -> Piece:
        return b""


def is_compressed(data: pa.Buffer) -> bool:
    """Return whether a part is compressed, by the first of its batches.

    >>> batch = pa.record_batch({"k": [1, 2]})
    >>> parts = [Codec(batch.schema, "arrow", c).stream(batch) for c in ("none", "zstd")]
    >>> [is_compressed(part) for part in parts]
    [False, True]
    """
    if frames.is_framed(data):
        return frames.is_compressed(data)
    try:
        first = PREFIX.size + PREFIX.unpack_from(data)[1]
        start, (_, length) = first + PREFIX.size, PREFIX.unpack_from(data, first)
        return length > 0 and bool(describe(bytes(data[start : start + length])).packed)
    except (struct.error, ValueError):
        # The decoder raises the error for bytes that are not Arrow.
        return False


class Decoder:
    """Decodes parts of one exchange into batches, whatever their payload.

    `columns` names the columns to decode, in the schema's order; None means all. Parts of equal
    schemas begin with equal bytes, so a schema that was checked once is not decoded again.

    >>> schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    >>> part = Codec(schema, "arrow", "none").stream(pa.record_batch([[1], [2]], schema=schema))
    >>> [batch.to_pylist() for batch in Decoder(schema, ["v"]).batches(part, "part-0.ipc")]
    [[{'v': 2}]]
    """

    def __init__(self, schema: pa.Schema, columns: Sequence[str] | None = None) -> None:
        self._schema = schema
        self._names = schema.names if columns is None else list(columns)
        self._known = b""
        fields = None if columns is None else [schema.get_field_index(name) for name in columns]
        self._options = pa.ipc.IpcReadOptions(included_fields=fields)

    def batches(self, data: pa.Buffer, path: str) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a part."""
        try:
            for stream in _streams(data, path):
                self._check_schema(stream, path)
                with pa.ipc.open_stream(stream, options=self._options) as reader:
                    yield from reader
        except (pa.ArrowException, OSError, KeyError, UnicodeDecodeError) as error:
            if isinstance(error, CorruptPart):
                raise
            raise CorruptPart(f"not a readable Arrow stream: {error}", path=path) from error

    def columns(self) -> list[Decoder]:
        """Return one decoder per column."""
        return [Decoder(self._schema, [name]) for name in self._names]

    def _check_schema(self, stream: pa.Buffer, path: str) -> None:
        if self._known and bytes(stream[: len(self._known)]) == self._known:
            return
        actual, expected = pa.ipc.open_stream(stream).schema, self._schema
        if actual.names != expected.names or actual.types != expected.types:
            columns = f"{_columns(actual)}, not {_columns(expected)}"
            raise CorruptPart(f"its columns are {columns}", path=path)
        self._known = bytes(stream[: PREFIX.size + PREFIX.unpack_from(stream)[1]])


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def decode_schema(data: pa.Buffer, path: str) -> pa.Schema:
    """Decode the Arrow schema at the start of a part."""
    stream = next(_streams(data, path))
    try:
        schema = pa.ipc.open_stream(stream).schema
        # pyarrow decodes the names lazily, and they may not be valid UTF-8.
        list(schema.names)
        return schema
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise CorruptPart(f"not a readable Arrow stream: {error}", path=path) from error


def _streams(data: pa.Buffer, path: str) -> Iterator[pa.Buffer]:
    """Yield the Arrow streams that a part consists of."""
    return frames.decode(data, path) if frames.is_framed(data) else iter((data,))


def checksum(data: pa.Buffer) -> int:
    """Compute the manifest's checksum of a part: xxh3 with 64 bits."""
    return int(xxhash.xxh3_64_intdigest(data))
