"""Parts are plain Arrow streams or FFQ's frames, for any division into pieces."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from itertools import accumulate, product
from typing import Any

import ffq_reference as ffq
import pyarrow as pa
import pytest
from arrow_strategies import arrays, kinds, texts
from hypothesis import given
from hypothesis import strategies as st

from ffq_spark.errors import CorruptPart
from ffq_spark.format.chunks import check_chunks
from ffq_spark.format.frames import CODECS as COMPRESSIONS
from ffq_spark.format.frames import is_framed
from ffq_spark.format.index import Chunk
from ffq_spark.format.payload import (
    Codec,
    Decoder,
    PartEncoder,
    checksum,
    decode_schema,
)

CODECS = list(product(("arrow", "ffqs"), COMPRESSIONS))
SCHEMA = pa.schema([("k", pa.int64()), ("text", pa.string())])


def batches_of(*sizes: int) -> list[pa.RecordBatch]:
    return [
        pa.record_batch([list(range(n)), [f"{n}-{i}" * 5 for i in range(n)]], schema=SCHEMA)
        for n in sizes
    ]


def encode(encoder: PartEncoder, batches: list[pa.RecordBatch]) -> pa.Buffer:
    pieces = [encoder.start(), *(encoder.batch(batch) for batch in batches), encoder.end()]
    return pa.py_buffer(b"".join(bytes(piece) for piece in pieces))


def decode(
    part: pa.Buffer, path: str, schema: pa.Schema = SCHEMA, columns: list[str] | None = None
) -> Iterator[pa.RecordBatch]:
    return Decoder(schema, columns).batches(part, path)


def columns(draw: st.DrawFn, kind: pa.DataType) -> pa.RecordBatch:
    return pa.record_batch([draw(arrays(kind))], names=["c"])


@st.composite
def same_typed_batches(draw: st.DrawFn) -> list[pa.RecordBatch]:
    kind = draw(kinds())
    return [columns(draw, kind) for _ in range(draw(st.integers(1, 3)))]


@given(same_typed_batches())
def test_joined_pieces_are_the_stream_that_pyarrow_writes_at_once(
    batches: list[pa.RecordBatch],
) -> None:
    part = encode(Codec(batches[0].schema, "arrow", "none").encoder(), batches)
    assert bytes(part) == ffq.stream(*batches)


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_streams_have_the_batches_that_were_put_in(compression: str) -> None:
    batches = batches_of(3, 0, 500)
    part = encode(Codec(batches[0].schema, "arrow", compression).encoder(), batches)
    assert list(pa.ipc.open_stream(part)) == batches
    assert len(part) < len(ffq.stream(*batches))


@given(same_typed_batches(), st.sampled_from(CODECS))
def test_every_payload_and_compression_decodes(
    batches: list[pa.RecordBatch], codec: tuple[str, str]
) -> None:
    encoder = Codec(batches[0].schema, *codec).encoder()
    part = encode(encoder, batches)
    decoded = list(decode(part, "part", batches[0].schema))
    assert [batch.num_rows for batch in decoded] == [batch.num_rows for batch in batches]
    for batch, original in zip(decoded, batches, strict=True):
        assert batch.schema == original.schema
        assert texts(pa.table(batch)) == texts(pa.table(original))
    assert is_framed(part) == (codec[0] == "ffqs")
    assert decode_schema(part, "part") == batches[0].schema


@pytest.mark.parametrize(("payload", "compression"), CODECS)
def test_totals_are_those_of_the_joined_pieces(payload: str, compression: str) -> None:
    batches = batches_of(3, 40)
    encoder = Codec(batches[0].schema, payload, compression).encoder()
    part = encode(encoder, batches)
    totals = encoder.totals
    assert (totals.bytes, totals.rows, totals.batches) == (len(part), 43, 2)
    assert totals.checksum == checksum(part)
    assert len(totals.chunks) == (2 if payload == "ffqs" else 0)
    if payload == "ffqs":
        check_chunks(part, tuple(totals.chunks), "part")


@pytest.mark.parametrize(("payload", "compression"), CODECS)
def test_chosen_columns_alone_are_decoded(payload: str, compression: str) -> None:
    (batch,) = batches_of(7)
    part = encode(Codec(batch.schema, payload, compression).encoder(), [batch])
    assert list(decode(part, "part", columns=["text"])) == [batch.select(["text"])]


@pytest.mark.parametrize("codec", COMPRESSIONS)
def test_frames_built_by_hand_decode(codec: str) -> None:
    batches = batches_of(3, 40, 1)
    part = b"".join(ffq.frame(ffq.stream(*group), codec) for group in (batches[:2], batches[2:]))
    assert list(decode(pa.py_buffer(part), "part")) == batches


def test_the_zstd_frames_built_by_hand_have_no_content_size() -> None:
    import zstandard

    body = ffq.frame(ffq.stream(*batches_of(9)), "zstd")[ffq.FRAME_HEADER_BYTES :]
    assert zstandard.get_frame_parameters(body).content_size == zstandard.CONTENTSIZE_UNKNOWN


def test_a_part_may_mix_codecs() -> None:
    batches = batches_of(3, 5, 8)
    frames = [ffq.frame(ffq.stream(b), c) for b, c in zip(batches, COMPRESSIONS, strict=True)]
    assert list(decode(pa.py_buffer(b"".join(frames)), "part")) == batches


@pytest.mark.parametrize("codec", CODECS)
def test_a_part_with_other_columns_is_refused_whatever_came_before(codec: tuple[str, str]) -> None:
    (batch,) = batches_of(3)
    decoder = Decoder(SCHEMA)
    part = encode(Codec(SCHEMA, *codec).encoder(), [batch])
    for _ in range(2):
        assert list(decoder.batches(part, "part")) == [batch]
    other = batch.rename_columns(["k", "other"])
    with pytest.raises(CorruptPart, match="its columns are k int64, other string"):
        list(decoder.batches(encode(Codec(other.schema, *codec).encoder(), [other]), "part"))
    assert list(decoder.batches(part, "part")) == [batch]


def test_every_frame_of_a_part_must_have_the_columns() -> None:
    (batch,) = batches_of(3)
    other = ffq.frame(ffq.stream(batch.rename_columns(["k", "other"])))
    with pytest.raises(CorruptPart, match="its columns are"):
        list(decode(pa.py_buffer(ffq.frame(ffq.stream(batch)) + other), "part"))


# --- damage -----------------------------------------------------------------------------------


def header(magic: bytes = b"FFQS", version: int = 1, codec: int = 0, *lengths: int) -> bytes:
    return struct.pack("<4sBBxxQQ", magic, version, codec, *(lengths or (4, 4)))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (header()[:23], "header is cut at byte 0"),
        (header() + b"abc", "frame at byte 0 is cut"),
        (header(version=2) + b"abcd", "no frame of a known kind at byte 0"),
        (header(codec=3) + b"abcd", "no frame of a known kind at byte 0"),
        (header() + b"abcd", "not a readable Arrow stream"),
        (header(codec=1) + b"abcd", "not a readable lz4 frame"),
        (header(codec=2) + b"abcd", "not a readable zstd frame"),
        (header(b"FFQS", 1, 2, 1 << 62, 4) + b"abcd", "not a readable zstd frame"),
        (header(b"FFQS", 1, 2, (1 << 64) - 1, 4) + b"abcd", "not a readable zstd frame"),
        (b"", "not a readable Arrow stream"),
        (b"nonsense", "not a readable Arrow stream"),
    ],
)
def test_bytes_that_are_no_part_are_refused(data: bytes, text: str) -> None:
    for use in (lambda buffer: list(decode(buffer, "the/part")), schema_of):
        with pytest.raises(CorruptPart, match=text) as caught:
            use(pa.py_buffer(data))
        assert caught.value.path == "the/part"


def schema_of(buffer: pa.Buffer) -> Any:
    return decode_schema(buffer, "the/part")


def test_a_second_frame_that_is_damaged_is_refused() -> None:
    good = ffq.frame(ffq.stream(*batches_of(3)))
    with pytest.raises(CorruptPart, match=f"no frame of a known kind at byte {len(good)}"):
        list(decode(pa.py_buffer(good + b"X" + good[1:]), "part"))


def frames_and_chunks() -> tuple[bytes, tuple[Chunk, ...]]:
    frames = [ffq.frame(ffq.stream(batch)) for batch in batches_of(3, 5)]
    starts = [0, *accumulate(len(frame) for frame in frames)]
    chunks = tuple(
        Chunk(start, len(frame), len(frame) - 24, len(frame) - 24, rows, 1, zlib.adler32(frame))
        for start, frame, rows in zip(starts, frames, (3, 5), strict=False)
    )
    return b"".join(frames), chunks


def test_chunks_that_fit_their_frames_pass() -> None:
    data, chunks = frames_and_chunks()
    check_chunks(pa.py_buffer(data), chunks, "part")


def test_any_flipped_byte_of_a_frame_contradicts_its_chunk() -> None:
    data, chunks = frames_and_chunks()
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        with pytest.raises(CorruptPart, match="checksum mismatch in the frame"):
            check_chunks(pa.py_buffer(bytes(damaged)), chunks, "part")


def test_chunks_must_cover_the_file_exactly() -> None:
    data, chunks = frames_and_chunks()
    for wrong in (chunks[1:], chunks[::-1], (chunks[0], chunks[0])):
        with pytest.raises(CorruptPart, match="do not cover"):
            check_chunks(pa.py_buffer(data), wrong, "part")
    with pytest.raises(CorruptPart, match="longer than the index's chunks"):
        check_chunks(pa.py_buffer(data), chunks[:1], "part")
    with pytest.raises(CorruptPart, match="do not cover"):
        check_chunks(pa.py_buffer(data[:-1]), chunks, "part")
