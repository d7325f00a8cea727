"""The bytes of a part: one Arrow IPC stream (`arrow`), or FFQ's frames around streams (`ffqs`).

Encoders give pieces that only have to be joined, so that a part of any size is written without
being held in memory. Decoders take the whole part.
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
from ffq_spark.format.columns import MAX_TAIL_BYTES, DirectoryWriter, buffer_counts
from ffq_spark.format.index import Chunk
from ffq_spark.format.messages import PREFIX, describe

Piece: TypeAlias = "bytes | pa.Buffer"

PAYLOADS = ("arrow", "ffqs")
COMPRESSIONS = ("none", "lz4", "zstd")

_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_FRAME_MAGIC = b"FFQS"
_FRAME_VERSION = 1
FRAME = struct.Struct("<4sBB2xQQ")
"""What a frame begins with: magic, version, codec, length of the stream, length of the body."""


@dataclass
class PartTotals:
    """What the index and the manifest say of a part, counted while its pieces pass by."""

    bytes: int = 0
    rows: int = 0
    batches: int = 0
    compressed_bytes: int = 0
    uncompressed_bytes: int = 0
    tail_bytes: int = 0
    tail_checksum: int = 0
    """Of the last bytes, if they are a directory of the columns."""
    chunks: list[Chunk] = field(default_factory=list)
    _digest: xxhash.xxh3_64 = field(default_factory=xxhash.xxh3_64)

    def count(self, piece: Piece) -> Piece:
        self.bytes += len(piece)
        self._digest.update(piece)
        return piece

    @property
    def checksum(self) -> int:
        return self._digest.intdigest()


class PartEncoder(Protocol):
    """Turns the batches of one part into pieces and keeps its totals."""

    totals: PartTotals

    def start(self) -> Piece: ...

    def batch(self, batch: pa.RecordBatch) -> Piece: ...

    def end(self) -> Piece: ...


class Codec:
    """How the parts of one task are encoded: made once, used for every part.

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
        """A complete IPC stream."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.schema, options=self._options) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return sink.getvalue()

    def message(self, batch: pa.RecordBatch) -> pa.Buffer:
        """The batch alone, as it stands inside a stream."""
        if self._buffers is None:
            # Allocated once, at its size; a stream's buffer grows by copies.
            return batch.serialize()
        stream = self.stream(batch)
        return stream[len(self.header) : len(stream) - len(_END)]

    @cached_property
    def _no_rows(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([], self.schema)

    def tail(self, directory: DirectoryWriter) -> pa.Buffer:
        """The end of a part that has a directory of its columns."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.schema, options=self._options) as writer:
            writer.write_batch(self._no_rows, custom_metadata=directory.encode())
        return sink.getvalue()[len(self.header) :]


class StreamEncoder:
    """`payload=arrow`: schema, batches, for a large part the directory of columns, end marker."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._directory: DirectoryWriter | None = None
        self.totals = PartTotals()

    def start(self) -> Piece:
        return self.totals.count(self._codec.header)

    def batch(self, batch: pa.RecordBatch) -> Piece:
        codec, message = self._codec, self._codec.message(batch)
        if not self.totals.batches:
            self._directory = DirectoryWriter.of(codec.header, codec.buffer_counts, message)
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
    """`payload=ffqs`: a frame for each batch."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self.totals = PartTotals()

    def start(self) -> Piece:
        return b""

    def batch(self, batch: pa.RecordBatch) -> Piece:
        frame, body_bytes, stream_bytes = encode_frame(
            self._codec.stream(batch), self._codec.compression
        )
        totals = self.totals
        totals.chunks.append(
            Chunk(
                offset_bytes=totals.bytes,
                frame_bytes=len(frame),
                compressed_bytes=body_bytes,
                uncompressed_bytes=stream_bytes,
                rows=batch.num_rows,
                batches=1,
                checksum32=zlib.adler32(frame),
            )
        )
        totals.rows += batch.num_rows
        totals.batches += 1
        totals.compressed_bytes += body_bytes
        totals.uncompressed_bytes += stream_bytes
        return totals.count(frame)

    def end(self) -> Piece:
        return b""


def encode_frame(stream: pa.Buffer, compression: str) -> tuple[bytes, int, int]:
    """One frame around a stream, with the lengths of its body and of the stream."""
    body = stream if compression == "none" else pa.compress(stream, codec=compression)
    header = FRAME.pack(
        _FRAME_MAGIC, _FRAME_VERSION, COMPRESSIONS.index(compression), len(stream), len(body)
    )
    return header + bytes(body), len(body), len(stream)


def is_framed(data: pa.Buffer | bytearray) -> bool:
    """Whether a part consists of FFQ's frames."""
    return bytes(data[:4]) == _FRAME_MAGIC


def frame(header: bytes | bytearray, path: str) -> tuple[str, int, int]:
    """A frame's codec and the lengths of its stream and of its body, from its header."""
    magic, version, codec, length, body_length = FRAME.unpack(header)
    if magic != _FRAME_MAGIC or version != _FRAME_VERSION or codec >= len(COMPRESSIONS):
        raise CorruptPart("no frame of a known kind", path=path)
    return COMPRESSIONS[codec], length, body_length


def is_compressed(data: pa.Buffer) -> bool:
    """Whether a part takes more memory than it has bytes, by the first of its batches.

    >>> batch = pa.record_batch({"k": [1, 2]})
    >>> parts = [Codec(batch.schema, "arrow", c).stream(batch) for c in ("none", "zstd")]
    >>> [is_compressed(part) for part in parts]
    [False, True]
    """
    if is_framed(data):
        return len(data) > FRAME.size and bool(FRAME.unpack_from(data)[2])
    try:
        first = PREFIX.size + PREFIX.unpack_from(data)[1]
        start, (_, length) = first + PREFIX.size, PREFIX.unpack_from(data, first)
        return length > 0 and bool(describe(bytes(data[start : start + length])).packed)
    except (struct.error, ValueError):
        # No Arrow: whoever decodes it says so.
        return False


class Decoder:
    """Turns parts of one exchange into batches, whichever payload they have.

    `columns` are the ones to give, in the schema's order, None for all. Equal parts begin with
    equal bytes, so a schema that was found right once is not looked at again.

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
        """The batches of a part."""
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
        """A decoder for each of the columns alone."""
        return [Decoder(self._schema, [name]) for name in self._names]

    def _check_schema(self, stream: pa.Buffer, path: str) -> None:
        if self._known and bytes(stream[: len(self._known)]) == self._known:
            return
        found, expected = pa.ipc.open_stream(stream).schema, self._schema
        if found.names != expected.names or found.types != expected.types:
            columns = f"{_columns(found)}, not {_columns(expected)}"
            raise CorruptPart(f"its columns are {columns}", path=path)
        self._known = bytes(stream[: PREFIX.size + PREFIX.unpack_from(stream)[1]])


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def decode_schema(data: pa.Buffer, path: str) -> pa.Schema:
    """The Arrow schema that a part starts with."""
    stream = next(_streams(data, path))
    try:
        schema = pa.ipc.open_stream(stream).schema
        # Names are decoded only when they are asked for.
        list(schema.names)
        return schema
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise CorruptPart(f"not a readable Arrow stream: {error}", path=path) from error


def _streams(data: pa.Buffer, path: str) -> Iterator[pa.Buffer]:
    """The Arrow streams that a part consists of."""
    return _frames(data, path) if is_framed(data) else iter((data,))


def _frames(data: pa.Buffer, path: str) -> Iterator[pa.Buffer]:
    position = 0
    while position < len(data):
        if len(data) - position < FRAME.size:
            raise CorruptPart(f"a frame header is cut at byte {position}", path=path)
        magic, version, codec, length, body_length = FRAME.unpack_from(data, position)
        if magic != _FRAME_MAGIC or version != _FRAME_VERSION or codec >= len(COMPRESSIONS):
            raise CorruptPart(f"no frame of a known kind at byte {position}", path=path)
        start = position + FRAME.size
        position = start + body_length
        if position > len(data):
            raise CorruptPart(f"the frame at byte {start - FRAME.size} is cut", path=path)
        body = data[start:position]
        yield body if codec == 0 else _decompress(body, length, COMPRESSIONS[codec], path)


def _decompress(body: pa.Buffer, length: int, codec: str, path: str) -> pa.Buffer:
    try:
        return pa.decompress(body, decompressed_size=length, codec=codec)
    except (pa.ArrowException, OSError, OverflowError) as error:
        raise CorruptPart(f"not a readable {codec} frame: {error}", path=path) from error


def checksum(data: pa.Buffer) -> int:
    """The manifest's checksum of a part: xxh3, 64 bits."""
    return int(xxhash.xxh3_64_intdigest(data))
