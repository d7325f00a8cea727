"""A map attempt writes parts, in one file or in several, and its index last.

The packed layout is one file for each map task, with the same rows and far fewer requests.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import ffq_reference as ffq
import pyarrow as pa
import pytest
from conftest import Place
from layouts import write_options

from ffq_spark import Exchange
from ffq_spark.errors import CorruptIndex
from ffq_spark.exchange.write.attempt_writer import write_attempt
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.exchange.write.prepare import prepare
from ffq_spark.format import manifest
from ffq_spark.format.digest import Digest
from ffq_spark.format.paths import AttemptId
from ffq_spark.format.payload import checksum
from ffq_spark.format.records import QueryRecord
from ffq_spark.store import ReadTotals, Store

ROWS = 5_000


def write(place: Place, layout: str, *, partitions: int = 16, rows: int = ROWS) -> Exchange:
    options = write_options(keys=("k",), partitions=partitions, layout=layout)
    batch = pa.record_batch({"k": range(rows), "name": [f"row {n}" for n in range(rows)]})
    write_batches(place.root, [batch], options=options, storage_options=place.storage_options)
    return Exchange(place.root, place.storage_options)


def rows_of(exchange: Exchange, **options: object) -> Counter[tuple[int, str]]:
    table = exchange.read(**options).read_all()
    return Counter(zip(table["k"].to_pylist(), table["name"].to_pylist(), strict=True))


def test_both_layouts_hold_the_same_rows_in_the_same_partitions(place: Place) -> None:
    other = Place(f"{place.root}-packed", place.storage_options)
    parts, packed = write(place, "parts"), write(other, "packed")
    assert rows_of(parts) == rows_of(packed)
    for partition in (0, 7, 15):
        assert rows_of(parts, partitions=[partition]) == rows_of(packed, partitions=[partition])
    assert packed.lookup(42).to_pylist() == parts.lookup(42).to_pylist()
    assert packed.verify().ok
    names = ["reduce", "bytes", "rows", "batches", "checksum"]
    assert packed.parts().select(names) == parts.parts().select(names)


def test_a_packed_attempt_is_one_file_of_complete_streams(root: str) -> None:
    table = write(Place(root), "packed").parts()
    (file,) = set(table["file"].to_pylist())
    folder = Path(root, file).parent
    assert sorted(p.name for p in folder.iterdir()) == ["index.bin", "index.json", "parts.ipc"]
    data, end = Path(root, file).read_bytes(), 0
    for part in table.to_pylist():
        assert part["offset"] == end
        end += part["bytes"]
        rows = pa.ipc.open_stream(data[part["offset"] : end]).read_all()
        assert rows.num_rows == part["rows"]
    assert end == len(data)


def test_a_full_read_asks_once_for_what_lies_together(root: str) -> None:
    exchange = write(Place(root), "packed")
    totals = ReadTotals()
    exchange.read(totals=totals).read_all()
    assert (totals.requests, totals.bytes) == (1, exchange.info().bytes)
    limited = ReadTotals()
    exchange.read(totals=limited, credits=4096).read_all()
    assert limited.requests == 16


@pytest.mark.parametrize("layout", ["parts", "packed"])
def test_a_read_from_a_server_stays_within_its_credits(s3: Any, layout: str) -> None:
    place = Place(f"s3://{s3.bucket}/{uuid.uuid4().hex}", s3.storage_options)
    exchange = write(place, layout, partitions=64, rows=40_000)
    sizes, totals = exchange.parts()["bytes"].to_pylist(), ReadTotals()
    credits = sum(sizes) // 4
    assert exchange.read(totals=totals, credits=credits).read_all().num_rows == 40_000
    assert totals.bytes == sum(sizes)
    # The reader prefetches, but stays within its credits.
    assert max(sizes) < totals.peak_bytes <= credits


def test_one_partition_is_one_range_of_the_file(root: str) -> None:
    exchange = write(Place(root), "packed")
    totals = ReadTotals()
    exchange.read(totals=totals, partitions=[3]).read_all()
    (size,) = exchange.parts(partitions=[3])["bytes"].to_pylist()
    assert (totals.requests, totals.bytes) == (1, size)


def test_parts_are_found_by_the_index_alone(place: Place) -> None:
    exchange = write(place, "packed")
    query = exchange.steps()[0].body.query
    assert rows_of(exchange, query=query) == rows_of(exchange)
    for part in exchange.parts().to_pylist():
        raw = exchange.fetch(query, 0, part["reduce"])
        assert len(raw) == part["bytes"]
        assert pa.ipc.open_stream(raw).read_all().num_rows == part["rows"]
        piece = exchange.fetch(query, 0, part["reduce"], start_offset=8, max_bytes=100)
        assert piece == raw[8:108]


def test_a_reader_of_ffq_misses_the_file_and_reads_no_wrong_one(root: str) -> None:
    """FFQ opens the path in `file` and reads one stream from its first byte."""
    write(Place(root), "packed")
    (file,) = Path(root).glob("shuffle/*/0/0/1/index.json")
    index = json.loads(file.read_bytes())
    assert len(index["partitions"]) == 16
    for partition in index["partitions"]:
        assert not Path(root, partition["file"]).exists()


def test_an_index_that_points_elsewhere_is_refused(root: str) -> None:
    exchange = write(Place(root), "packed")
    query = exchange.steps()[0].body.query
    (folder,) = Path(root).glob("shuffle/*/0/0/1")
    document = (folder / "index.json").read_bytes().replace(b"1/parts.ipc", b"1/other.ipc")
    ffq.write_index(folder, document)
    with pytest.raises(CorruptIndex, match=r"other\.ipc"):
        exchange.read(query=query)


def test_a_task_without_rows_has_an_index_and_no_file(root: str) -> None:
    options = write_options(keys=("k",), partitions=4, layout="packed")
    schema = pa.schema([("k", pa.int64())])
    write_batches(root, [], options=options, schema=schema)
    (folder,) = Path(root).glob("shuffle/*/0/0/1")
    assert sorted(p.name for p in folder.iterdir()) == ["index.bin", "index.json"]
    assert Exchange(root).read().read_all().num_rows == 0


def test_layouts_may_differ_from_step_to_step(root: str) -> None:
    write(Place(root), "parts")
    exchange = write(Place(root), "packed")
    assert len(rows_of(exchange)) == ROWS
    assert set(rows_of(exchange).values()) == {2}


def test_rows_that_were_spilled_are_packed_in_partition_order(root: str) -> None:
    options = write_options(
        keys=("k",), partitions=64, layout="packed", max_buffer_bytes=64 << 10, sort_by=("k",)
    )
    batches = [pa.record_batch({"k": range(n, n + 3000)}) for n in range(0, 60_000, 3000)]
    write_batches(root, batches, options=options)
    exchange = Exchange(root)
    assert sorted(exchange.read().read_all()["k"].to_pylist()) == list(range(60_000))
    assert exchange.parts()["reduce"].to_pylist() == list(range(64))
    for partition in (0, 63):
        keys = exchange.read(partitions=[partition]).read_all()["k"].to_pylist()
        assert keys == sorted(keys)


def test_an_attempt_that_fails_has_no_index(root: str) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"k": [1, 2]})
        raise ZeroDivisionError

    options = write_options(keys=("k",), partitions=2)
    with pytest.raises(ZeroDivisionError):
        write_batches(root, rows(), options=options)
    assert not list(Path(root).rglob("index.*"))


@pytest.mark.parametrize("layout", ["parts", "packed"])
def test_an_output_describes_the_files_that_were_written(layout: str) -> None:
    store = Store(f"memory://{uuid.uuid4().hex}")
    options = write_options(keys=("k",), partitions=8, layout=layout)
    schema = pa.schema([("k", pa.int64())])
    query = QueryRecord(7, "app-1", 0, "append", 0)
    job = WriteJob.of(prepare(store, options, schema), query, options)
    batch = pa.record_batch([list(range(1000))], schema=schema)
    output = write_attempt(store, replace(job, digests=True), 3, 2, [batch])
    assert output.id == AttemptId(7, 0, 3, 2)
    assert output.digest == Digest.of(batch)
    sizes = dict(store.walk(output.id.directory))
    parts = manifest.decode(output.manifest, "output").to_pylist()
    ends = {part["file"]: part["offset"] + part["bytes"] for part in parts}
    assert ends == {file: sizes[file] for file in ends}
    assert len(ends) == (1 if layout == "packed" else len(parts))
    assert sum(part["rows"] for part in parts) == 1000
    for part in parts:
        data = store.read_range(part["file"], part["offset"], part["bytes"])
        assert checksum(data) == part["checksum"]
