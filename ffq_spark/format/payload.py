"""The bytes of a part: one Arrow IPC stream (`arrow`), or FFQ's frames around streams (`ffqs`).

Encoders give pieces that only have to be joined, so that a part of any size is written without
being held in memory. Decoders take the whole part.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol, TypeAlias

import pyarrow as pa
import xxhash

from ffq_spark.errors import CorruptPart, FfqError
from ffq_spark.format.index import Chunk

Piece: TypeAlias = "bytes | pa.Buffer"

PAYLOADS = ("arrow", "ffqs")
COMPRESSIONS = ("none", "lz4", "zstd")

_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_FRAME_MAGIC = b"FFQS"
_FRAME_VERSION = 1
_FRAME = struct.Struct("<4sBB2xQQ")
# What an Arrow message begins with: a marker, and the length of its description.
_MESSAGE = struct.Struct("<Ii")


@dataclass
class PartTotals:
    """What the index and the manifest say of a part, counted while its pieces pass by."""

    bytes: int = 0
    rows: int = 0
    batches: int = 0
    compressed_bytes: int = 0
    uncompressed_bytes: int = 0
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


class StreamEncoder:
    """`payload=arrow`: schema, batches, end marker."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self.totals = PartTotals()

    def start(self) -> Piece:
        return self.totals.count(self._codec.header)

    def batch(self, batch: pa.RecordBatch) -> Piece:
        self.totals.rows += batch.num_rows
        self.totals.batches += 1
        return self.totals.count(self._codec.message(batch))

    def end(self) -> Piece:
        return self.totals.count(_END)


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
    header = _FRAME.pack(
        _FRAME_MAGIC, _FRAME_VERSION, COMPRESSIONS.index(compression), len(stream), len(body)
    )
    return header + bytes(body), len(body), len(stream)


def is_framed(data: pa.Buffer) -> bool:
    """Whether a part consists of FFQ's frames."""
    return bytes(data[:4]) == _FRAME_MAGIC


def frame_bytes(data: pa.Buffer) -> int:
    """How long the frame is that these bytes begin with, or the bytes themselves if cut."""
    if len(data) < _FRAME.size:
        return len(data)
    return int(_FRAME.size + _FRAME.unpack_from(data)[4])


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

    def stream(self, file: BinaryIO, head: pa.Buffer, path: str) -> Iterator[pa.RecordBatch]:
        """The batches of a part that is one stream, from a file that begins with `head`."""
        try:
            self._check_schema(head, path)
            with pa.ipc.open_stream(pa.PythonFile(file, "r"), options=self._options) as reader:
                yield from reader
        except (pa.ArrowException, OSError, KeyError, UnicodeDecodeError) as error:
            if isinstance(error, FfqError):
                raise
            raise CorruptPart(f"not a readable Arrow stream: {error}", path=path) from error

    def frames(
        self, file: BinaryIO, chunks: Sequence[Mapping[str, int]], path: str
    ) -> Iterator[pa.RecordBatch]:
        """The batches of a part that consists of frames, from a file."""
        expected = iter(chunks)
        while header := file.read(_FRAME.size):
            length = _FRAME.unpack(header)[4] if len(header) == _FRAME.size else 0
            frame = pa.py_buffer(header + file.read(length))
            chunk = next(expected, None)
            if chunk is not None and zlib.adler32(frame) != chunk["checksum32"]:
                raise CorruptPart("checksum mismatch in a frame", path=path)
            batches = list(self.batches(frame, path))
            # While the user has a batch, nothing here keeps it in memory.
            del frame
            while batches:
                yield batches.pop(0)

    def _check_schema(self, stream: pa.Buffer, path: str) -> None:
        if self._known and bytes(stream[: len(self._known)]) == self._known:
            return
        found, expected = pa.ipc.open_stream(stream).schema, self._schema
        if found.names != expected.names or found.types != expected.types:
            columns = f"{_columns(found)}, not {_columns(expected)}"
            raise CorruptPart(f"its columns are {columns}", path=path)
        self._known = bytes(stream[: _MESSAGE.size + _MESSAGE.unpack_from(stream)[1]])


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
        if len(data) - position < _FRAME.size:
            raise CorruptPart(f"a frame header is cut at byte {position}", path=path)
        magic, version, codec, length, body_length = _FRAME.unpack_from(data, position)
        if magic != _FRAME_MAGIC or version != _FRAME_VERSION or codec >= len(COMPRESSIONS):
            raise CorruptPart(f"no frame of a known kind at byte {position}", path=path)
        start = position + _FRAME.size
        position = start + body_length
        if position > len(data):
            raise CorruptPart(f"the frame at byte {start - _FRAME.size} is cut", path=path)
        body = data[start:position]
        yield body if codec == 0 else _decompress(body, length, COMPRESSIONS[codec], path)


def _decompress(body: pa.Buffer, length: int, codec: str, path: str) -> pa.Buffer:
    try:
        return pa.decompress(body, decompressed_size=length, codec=codec)
    except (pa.ArrowException, OSError, OverflowError) as error:
        raise CorruptPart(f"not a readable {codec} frame: {error}", path=path) from error


def check_chunks(data: pa.Buffer, chunks: tuple[Chunk, ...], path: str) -> None:
    """Compare every frame with the checksum that a version 2 index gives for it."""
    position = 0
    for chunk in chunks:
        end = chunk.offset_bytes + chunk.frame_bytes
        if chunk.offset_bytes != position or end > len(data):
            raise CorruptPart("the index's chunks do not cover the file", path=path)
        if zlib.adler32(data[position:end]) != chunk.checksum32:
            raise CorruptPart(f"checksum mismatch in the frame at byte {position}", path=path)
        position = end
    if position != len(data):
        raise CorruptPart("the file is longer than the index's chunks", path=path)


def checksum(data: pa.Buffer) -> int:
    """The manifest's checksum of a part: xxh3, 64 bits."""
    return int(xxhash.xxh3_64_intdigest(data))
