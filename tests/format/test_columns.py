"""A part with a column directory is an ordinary Arrow stream; damaged directories are refused."""

from __future__ import annotations

import base64
import io
import struct
from itertools import pairwise

import pyarrow as pa
import pytest

from ffq_spark.format.columns import (
    KEY,
    LEAST_BATCH_BYTES,
    ColumnDirectory,
    ColumnDirectoryWriter,
    buffer_counts,
)
from ffq_spark.format.frames import CODECS
from ffq_spark.format.messages import batch_head, metadata_value
from ffq_spark.format.payload import Codec, Decoder

ROWS = LEAST_BATCH_BYTES // 4
NAMES = [f"row {n * 7919:x}" for n in range(ROWS)]
BATCH = pa.record_batch({"k": range(ROWS), "name": NAMES, "ok": [n % 3 == 0 for n in range(ROWS)]})


def encoded(compression: str, batches: list[pa.RecordBatch]) -> tuple[bytes, int]:
    """Encode a part; return its bytes and the length of its tail."""
    encoder = Codec(batches[0].schema, "arrow", compression).encoder()
    pieces = [encoder.start(), *(encoder.batch(batch) for batch in batches), encoder.end()]
    return b"".join(bytes(piece) for piece in pieces), encoder.totals.tail_bytes


@pytest.mark.parametrize("compression", CODECS)
def test_every_arrow_reader_passes_the_directory_over(compression: str) -> None:
    part, tail = encoded(compression, [BATCH, BATCH.slice(7)])
    assert tail > 0
    expected = pa.Table.from_batches([BATCH, BATCH.slice(7)])
    assert pa.ipc.open_stream(part).read_all().equals(expected)
    assert list(Decoder(BATCH.schema).batches(pa.py_buffer(part), "part"))[2].num_rows == 0
    polars = pytest.importorskip("polars")
    assert polars.read_ipc_stream(io.BytesIO(part)).to_arrow().cast(expected.schema) == expected
    duckdb = pytest.importorskip("duckdb")
    reader = pa.ipc.open_stream(part)
    (counted,) = duckdb.from_arrow(reader).aggregate("COUNT(*), SUM(k)").fetchall()
    assert counted == (2 * ROWS - 7, sum(range(ROWS)) * 2 - 21)


def test_without_its_directory_a_part_is_what_arrow_writes() -> None:
    part, tail = encoded("none", [BATCH])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, BATCH.schema) as writer:
        writer.write_batch(BATCH)
    whole = bytes(sink.getvalue())
    assert part[: len(part) - tail] == whole[:-8] and part[-8:] == whole[-8:]


def test_the_directory_tells_each_piece() -> None:
    part, tail = encoded("none", [BATCH, BATCH])
    directory = ColumnDirectory.decode(memoryview(part)[-tail:], 3, len(part))
    assert list(directory.heads) == [1, 5] and directory.bounds[-1] == len(part) - tail
    for piece, (start, end) in enumerate(pairwise(directory.bounds)):
        assert directory.is_true(piece, memoryview(part)[start:end])
        assert not directory.is_true(piece, memoryview(part)[start : end - 1])
    keys = part[directory.bounds[2] : directory.bounds[3]]
    assert struct.unpack_from("<3q", keys) == (0, 1, 2)


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        (pa.null(), 0),
        (pa.list_(pa.struct([("a", pa.string()), ("b", pa.null())])), 6),
        (pa.map_(pa.string(), pa.int64()), 8),
        (pa.decimal128(9, 2), 2),
        (pa.dictionary(pa.int32(), pa.string()), None),
        (pa.list_(pa.string_view()), None),
        (pa.dense_union([pa.field("a", pa.int8())]), None),
    ],
    ids=str,
)
def test_buffers_are_counted_as_arrow_writes_them(kind: pa.DataType, count: int | None) -> None:
    schema = pa.schema([("k", pa.int64()), ("c", kind)])
    assert buffer_counts(schema) == (None if count is None else [2, count])
    if count is not None:
        batch = pa.record_batch([pa.array([1]), pa.nulls(1, kind)], schema=schema)
        assert batch_head(memoryview(batch.serialize())).buffers == 2 + count


def test_a_layout_that_is_not_understood_is_left_without_a_directory() -> None:
    writer = ColumnDirectoryWriter(Codec(BATCH.schema, "arrow", "none").header, [2, 2, 2])
    assert not writer.add(BATCH.serialize())
    assert not writer.add(BATCH.serialize()[:100])


def tail_with(*pairs: tuple[int, int], key: bytes = KEY) -> memoryview:
    """Make the tail of a part with the given directory."""
    packed = base64.b64encode(b"".join(struct.pack("<QQ", *pair) for pair in pairs))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, BATCH.schema) as writer:
        writer.write_batch(BATCH.slice(0, 0), custom_metadata={key: packed})
    header = Codec(BATCH.schema, "arrow", "none").header
    return memoryview(sink.getvalue())[len(header) :]


@pytest.mark.parametrize(
    "lengths",
    [
        [],
        [8, 8, 8, 8],
        [8, 8, 8, 8, 8, 8],
        [8, 8, 8, 8, 0],
        [8, 8, 8, 1, 15],
        [0, 16, 8, 8, 8],
        [16, 0, 8, 8, 8],
        [8, 8, 8, 8, 8 + (1 << 64) - (1 << 63)],
    ],
    ids=str,
)
def test_a_directory_that_cannot_be_is_refused(lengths: list[int]) -> None:
    for given, is_right in (([8, 8, 8, 8, 8], True), (lengths, False)):
        tail = tail_with(*((length, 0) for length in given))
        if is_right:
            assert ColumnDirectory.decode(tail, 3, 40 + len(tail)).pieces([1]) == [0, 1, 3]
        else:
            with pytest.raises(ValueError):
                ColumnDirectory.decode(tail, 3, 40 + len(tail))


def test_a_tail_without_a_directory_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no ffq\.columns"):
        metadata_value(tail_with((8, 0), key=b"other"), KEY)
    tail = tail_with((8, 0))
    for length in range(batch_head(tail).length):
        with pytest.raises(ValueError):
            metadata_value(tail[:length], KEY)
