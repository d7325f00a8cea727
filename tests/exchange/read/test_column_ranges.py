"""A read of some columns returns the same rows from fewer bytes, and verifies each of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from arrow_strategies import arrays, kinds, texts
from conftest import Place
from hypothesis import given, settings
from hypothesis import strategies as st
from layouts import write_options
from s3requests import counted_requests

from ffq_spark import Exchange
from ffq_spark.errors import CorruptPart
from ffq_spark.exchange.read import column_ranges
from ffq_spark.exchange.read.column_ranges import ColumnSelection, Thrift, check_directory
from ffq_spark.exchange.read.part import Part, list_parts
from ffq_spark.exchange.read.serial_read import read_parts
from ffq_spark.exchange.read.sorted_read import read_sorted
from ffq_spark.exchange.scan.partitioning import sorted_by
from ffq_spark.exchange.scan.snapshot import take_snapshot
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.format import columns
from ffq_spark.format.payload import Codec, Decoder, checksum
from ffq_spark.options import ReadOptions
from ffq_spark.store import ReadTotals, Store

MIB = 1 << 20
NAMES = [f"c{number}" for number in range(6)]


@pytest.fixture
def every_part_has_a_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the size limits, so that parts of a few rows are read by columns."""
    monkeypatch.setattr(columns, "LEAST_BATCH_BYTES", 0)
    monkeypatch.setattr(columns, "_LEAST_COLUMN_BYTES", 0)
    monkeypatch.setattr(column_ranges, "LOCAL", Thrift(enough=1, least_half=1, max_gap=0))


# --- rows -------------------------------------------------------------------------------------


@st.composite
def parts(draw: st.DrawFn) -> list[pa.RecordBatch]:
    chosen = [pa.int64(), *(draw(kinds()) for _ in range(draw(st.integers(1, 4))))]
    schema = pa.schema(list(zip(NAMES, chosen, strict=False)))
    batches = []
    for _ in range(draw(st.integers(1, 3))):
        rows = draw(st.integers(1, 9))
        arrays_of_batch = [draw(arrays(kind, rows, rows)) for kind in chosen]
        batches.append(pa.record_batch(arrays_of_batch, schema=schema))
    return batches


@settings(max_examples=100)
@given(
    parts(),
    st.sampled_from(["none", "lz4", "zstd"]),
    st.sets(st.integers(0, 4), min_size=1),
    st.sampled_from([0, 64, 1 << 20]),
)
def test_what_is_put_together_has_the_rows_of_the_whole(
    batches: list[pa.RecordBatch], compression: str, wanted: set[int], gap: int
) -> None:
    schema = batches[0].schema
    names = [name for number, name in enumerate(schema.names) if number in wanted]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "LEAST_BATCH_BYTES", 0)
        patch.setattr(columns, "_LEAST_COLUMN_BYTES", 0)
        patch.setattr(column_ranges, "LOCAL", Thrift(enough=-MIB, least_half=0, max_gap=gap))
        encoder = Codec(schema, "arrow", compression).encoder()
        pieces = [encoder.start(), *(encoder.batch(batch) for batch in batches), encoder.end()]
        selection = ColumnSelection(schema, names or schema.names[:1], local=True)
    whole = pa.py_buffer(b"".join(bytes(piece) for piece in pieces))
    size = encoder.totals.tail_bytes
    tail = whole[len(whole) - size :]
    assert 0 < size < len(whole) and checksum(tail) == encoder.totals.tail_checksum
    part = Part("part", 0, len(whole), tail_bytes=size, tail_checksum=checksum(tail))
    check_directory(schema, part, whole, "part")
    ranges = selection.ranges(part, tail, "part", "full")
    assert ranges is not None
    buffers = [whole[start : start + length] for start, length in ranges.spans]
    stream = ranges.assemble(buffers, "part", "full")
    decoder = Decoder(schema, names or schema.names[:1])
    expected = list(decoder.batches(whole, "part"))
    assert [batch.num_rows for batch in expected] == [*(b.num_rows for b in batches), 0]
    for one, other in zip(decoder.batches(stream, "part"), expected, strict=True):
        one.validate(full=True)
        assert texts(pa.table(one)) == texts(pa.table(other))


def wide(rows: int, width: int = 20, start: int = 0) -> pa.RecordBatch:
    numbers = range(start, start + rows)
    data: dict[str, Any] = {"k": pa.array(numbers, pa.int64())}
    data |= {f"c{i}": pa.array([n * i for n in numbers], pa.int64()) for i in range(width - 2)}
    return pa.record_batch(data | {"name": [f"row {n}" for n in numbers]})


def write(place: Place, batch: pa.RecordBatch, **options: Any) -> Exchange:
    chosen = write_options(keys=("k",), **{"partitions": 2, **options})
    write_batches(place.root, [batch], options=chosen, storage_options=place.storage_options)
    return Exchange(place.root, place.storage_options)


@pytest.mark.parametrize("layout", ["parts", "packed"])
def test_few_columns_are_few_bytes_on_every_storage(place: Place, layout: str) -> None:
    """The parts are large enough to be read by columns on remote storage."""
    exchange = write(place, wide(80_000), layout=layout)
    every, some = ReadTotals(), ReadTotals()
    whole = exchange.read(totals=every).read_all()
    chosen = exchange.read(columns=["c7", "k"], totals=some).read_all()
    assert chosen.equals(whole.select(["c7", "k"]))
    assert exchange.verify().ok
    assert some.bytes < 0.12 * every.bytes
    assert some.peak_bytes < 0.12 * every.bytes


def test_a_part_costs_a_request_for_its_tail_and_one_for_each_span(s3: Any) -> None:
    place = Place(f"s3://{s3.bucket}/columns", s3.storage_options)
    exchange = write(place, wide(80_000), partitions=1)
    # k lies next to the head; c7 and c8 form one span, c14 another.
    for chosen, requests in ((["k"], 2), (["c7", "c8"], 3), (["c7", "c8", "c14"], 4), (None, 1)):
        totals = ReadTotals()
        with counted_requests() as counted:
            exchange.read(columns=chosen, totals=totals).read_all()
        assert counted.requests(data=True).get == totals.requests == requests


def test_what_saves_little_is_read_whole(root: str) -> None:
    batch = wide(5_000)
    exchange = write(Place(root), batch, partitions=1)
    (size,) = exchange.parts()["bytes"].to_pylist()
    for dropped, requests in ((1, 1), (5, 1), (19, 3)):
        totals = ReadTotals()
        exchange.read(columns=batch.schema.names[dropped:], totals=totals).read_all()
        assert totals.requests == requests
        assert (totals.bytes == size) == (requests == 1)


@pytest.mark.parametrize(
    ("batch", "options"),
    [
        (wide(100), {}),
        (wide(50_000).select(["k"]), {}),
        (wide(5_000), {"payload": "ffqs"}),
    ],
    ids=["few rows", "one column", "frames"],
)
def test_other_parts_have_no_directory(
    root: str, batch: pa.RecordBatch, options: dict[str, Any]
) -> None:
    exchange = write(Place(root), batch, **options)
    parts = exchange.parts()
    assert set(parts["tail_bytes"].to_pylist()) == set(parts["tail_checksum"].to_pylist()) == {0}
    assert exchange.read(columns=["k"]).read_all().num_rows == batch.num_rows


def test_parts_of_both_kinds_come_in_one_read(root: str) -> None:
    place = Place(root)
    for rows, start in ((40_000, 0), (50, 40_000), (40_000, 40_050)):
        exchange = write(place, wide(rows, start=start), layout="packed", partitions=3)
    tails = exchange.parts()["tail_bytes"].to_pylist()
    assert 0 < sum(size > 0 for size in tails) < len(tails)
    table = exchange.read(columns=["k", "name"]).read_all().sort_by("k")
    assert table["k"].to_pylist() == list(range(80_050))
    assert table["name"].to_pylist() == [f"row {n}" for n in range(80_050)]


@pytest.mark.parametrize("in_memory", [1 << 30, 0], ids=["memory", "disk"])
def test_sorted_parts_are_merged_from_the_columns_alone(root: str, in_memory: int) -> None:
    place, options, totals = Place(root), ReadOptions(), ReadTotals()
    for start in (0, 20_000):
        write(place, wide(20_000, start=start), partitions=1, sort_by=("k",))
    snapshot = take_snapshot(Store(root), options)
    batches = read_sorted(
        snapshot.store,
        snapshot.parts(),
        snapshot.exchange.schema,
        sorted_by(snapshot, options),
        options,
        output=pa.schema([snapshot.exchange.schema.field("c3")]),
        totals=totals,
        in_memory=in_memory,
    )
    values = pa.Table.from_batches(batches)["c3"].to_pylist()
    assert values == [3 * n for n in range(40_000)]
    assert totals.bytes < 0.2 * sum(snapshot.parts()["bytes"].to_pylist())


# --- damage -----------------------------------------------------------------------------------


class Damaged:
    """A part of a few rows in two batches; reads use two of its columns."""

    def __init__(self, root: str, layout: str, compression: str) -> None:
        options = write_options(
            keys=("k",), partitions=2, layout=layout, compression=compression, statistics=("none",)
        )
        write_batches(root, [wide(24, width=6)], options=options)
        self.snapshot = take_snapshot(Store(root), ReadOptions())
        self.table = self.snapshot.parts().slice(1, 1)
        (self.part,) = list_parts(self.table)
        self.file = Path(root) / self.part.file
        self.good = self.file.read_bytes()

    def batches(self, verify: str) -> Iterator[pa.RecordBatch]:
        schema = self.snapshot.exchange.schema
        output = pa.schema([schema.field(name) for name in ("c2", "name")])
        options = ReadOptions(verify=verify)
        return read_parts(self.snapshot.store, self.table, schema, options, output=output)

    def read(self, verify: str = "full") -> list[dict[str, Any]]:
        return [row for batch in self.batches(verify) for row in batch.to_pylist()]

    def count(self, verify: str) -> int:
        return sum(batch.num_rows for batch in self.batches(verify))

    def used(self) -> list[bool]:
        """Return for each byte of the part whether the read needs it."""
        schema = self.snapshot.exchange.schema
        start, end = self.part.offset, self.part.offset + self.part.bytes
        tail = pa.py_buffer(self.good[end - self.part.tail_bytes : end])
        ranges = ColumnSelection(schema, ["c2", "name"], local=True).ranges(
            self.part, tail, "", "full"
        )
        assert ranges is not None
        needed = [False] * self.part.bytes
        for first, last in (*ranges.needed, (end - start - len(tail), end - start)):
            needed[first:last] = [True] * (last - first)
        return needed

    def flips(self) -> Iterator[int]:
        """Change each byte of the part in turn, while the caller handles the yielded position."""
        descriptor = os.open(self.file, os.O_WRONLY)
        try:
            for position in range(self.part.bytes):
                place = self.part.offset + position
                os.pwrite(descriptor, bytes([self.good[place] ^ 1 << position % 8]), place)
                yield position
                os.pwrite(descriptor, self.good[place : place + 1], place)
        finally:
            os.close(descriptor)


CODECS = [("parts", "none"), ("packed", "zstd")]


@pytest.fixture(params=CODECS, ids=["-".join(codec) for codec in CODECS])
def damaged(request: pytest.FixtureRequest, root: str, every_part_has_a_directory: None) -> Damaged:
    return Damaged(root, *request.param)


def test_damage_to_any_byte_that_is_used_is_noticed_and_to_no_other(damaged: Damaged) -> None:
    used, expected = damaged.used(), damaged.read()
    assert len(expected) == damaged.part.rows and 0.2 < sum(used) / len(used) < 0.95
    for position in damaged.flips():
        if used[position]:
            with pytest.raises(CorruptPart) as caught:
                damaged.read()
            assert caught.value.path == str(damaged.file)
        else:
            assert damaged.read() == expected
    assert damaged.read() == expected


@pytest.mark.parametrize("verify", ["counts", "none"])
def test_without_checksums_damage_is_never_another_error_nor_fewer_rows(
    damaged: Damaged, verify: str
) -> None:
    for _ in damaged.flips():
        try:
            rows = damaged.count(verify)
        except CorruptPart as error:
            assert error.path == str(damaged.file)
        else:
            assert verify == "none" or rows == damaged.part.rows


@pytest.mark.parametrize("verify", ["full", "counts", "none"])
def test_a_file_that_was_cut_anywhere_is_noticed(damaged: Damaged, verify: str) -> None:
    start, size = damaged.part.offset, damaged.part.bytes
    for length in range(0, size, 7):
        os.truncate(damaged.file, start + length)
        damaged.file.write_bytes(damaged.good[: start + length])
        with pytest.raises(CorruptPart, match=f"fewer than the committed {size} bytes"):
            damaged.read(verify)


@pytest.mark.part_files
def test_a_file_that_grew_is_noticed(root: str, every_part_has_a_directory: None) -> None:
    damaged = Damaged(root, "parts", "none")
    damaged.file.write_bytes(damaged.good + b"\0")
    for verify in ("full", "counts"):
        with pytest.raises(CorruptPart, match="longer than the committed parts"):
            damaged.read(verify)


def test_a_file_that_is_gone_is_noticed(damaged: Damaged) -> None:
    damaged.file.unlink()
    with pytest.raises(CorruptPart, match="the part is missing"):
        damaged.read()
