"""Parts and batches above the memory limits are read completely, and verified completely."""

from __future__ import annotations

import json
import os
import struct
import tempfile
import threading
from pathlib import Path
from typing import Any

import ffq_reference as ffq
import pyarrow as pa
import pytest
from layouts import write_options

from ffq_spark import Exchange
from ffq_spark.errors import CorruptPart, StoreFailed
from ffq_spark.exchange.read.bounded import MemoryLimits, read_bounded
from ffq_spark.exchange.read.checked_pieces import check_part
from ffq_spark.exchange.read.part_lookup import registered_part
from ffq_spark.exchange.scan.snapshot import take_snapshot
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.format.paths import AttemptId
from ffq_spark.options import ReadOptions
from ffq_spark.store import Store


def written(root: str, count: int, **options: Any) -> Exchange:
    batch = pa.record_batch(
        {
            "id": list(range(count)),
            "name": [None if i % 7 == 0 else f"{i:0100d}" for i in range(count)],
            "tags": [[i % 3] * (i % 4) for i in range(count)],
        }
    )
    write_batches(root, [batch], options=write_options(keys=("id",), partitions=2, **options))
    return Exchange(root)


def bounded(root: str, limits: MemoryLimits, columns: list[str] | None = None) -> Any:
    store = Store(root)
    snapshot = take_snapshot(store, ReadOptions.of_python({}))
    parts = snapshot.parts([], None)
    schema = snapshot.exchange.schema
    output = schema if columns is None else pa.schema([schema.field(name) for name in columns])
    return read_bounded(store, parts, schema, limits, output=output)


@pytest.mark.parametrize("layout", ["parts", "packed"])
@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
@pytest.mark.parametrize("payload", ["arrow", "ffqs"])
def test_rows_are_the_same_whatever_may_be_held(
    root: str, payload: str, compression: str, layout: str
) -> None:
    options = {"payload": payload, "compression": compression, "layout": layout}
    whole = written(root, 3_000, **options).read().read_all()
    for limit in (1, 100, 5_000, 60_000, 200_000, 1 << 24):
        for columns in (None, ["name"], ["tags", "id"]):
            if limit == 1 and columns != ["name"]:
                continue
            batches = list(bounded(root, MemoryLimits(limit, threading.Lock()), columns))
            expected = whole if columns is None else whole.select(columns)
            assert pa.Table.from_batches(batches).equals(expected)
            fixed = 1_000
            assert limit < fixed or max(b.nbytes for b in batches) <= limit


# --- damaged parts -----------------------------------------------------------------------------


def one_part(root: Path, data: bytes, rows: int, batches: int = 1) -> None:
    """Write a root as FFQ version 1 does, with this one part."""
    id = (7, 0, 0, 1)
    place = root / ffq.directory(id)
    place.mkdir(parents=True)
    (place / "part-0.ipc").write_bytes(data)
    entry = ffq.entry_v1(0, f"{ffq.directory(id)}/part-0.ipc", len(data), rows, batches)
    ffq.write_index(place, ffq.index_json(id, 1, [entry]))


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_number_of_rows_that_the_buffers_do_not_have_is_an_error(
    tmp_path: Path, compression: str | None
) -> None:
    """Computing the size of such a batch would read beyond its buffers."""
    rows, wrong = 4_243, 2_000_000_000
    batch = pa.record_batch({"id": range(rows), "tags": [["a", "b"]] * rows})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    data = bytes(sink.getvalue())
    damaged = data.replace(struct.pack("<q", rows), struct.pack("<q", wrong))
    assert damaged != data
    one_part(tmp_path, damaged, wrong)
    with pytest.raises(CorruptPart, match="not valid Arrow data"):
        list(bounded(str(tmp_path), MemoryLimits(3_000)))


def test_offsets_that_point_nowhere_are_an_error_also_deep_inside(tmp_path: Path) -> None:
    inner = pa.array([[["a"] * 3] * 2] * 1_000)
    offsets = memoryview(bytearray(inner.values.buffers()[1])).cast("i")
    offsets[500] = 1 << 30
    values = pa.ListArray.from_buffers(
        inner.values.type, 2_000, [None, pa.py_buffer(offsets)], children=[inner.values.values]
    )
    broken = pa.ListArray.from_buffers(
        inner.type, 1_000, [None, inner.buffers()[1]], children=[values]
    )
    one_part(tmp_path, ffq.stream(pa.record_batch({"a": broken})), 1_000)
    with pytest.raises(CorruptPart, match="not valid Arrow data"):
        list(bounded(str(tmp_path), MemoryLimits(3_000)))


@pytest.mark.parametrize("limit", [100, 1 << 20], ids=["in pieces", "whole"])
def test_a_frame_is_what_its_chunk_says_whatever_may_be_held(tmp_path: Path, limit: int) -> None:
    batches = [pa.record_batch({"a": [n] * 40}) for n in range(3)]
    place = ffq.write_v2(tmp_path, (7, 0, 0, 1), {0: batches}, "none")
    part, id = place / "part-0.ipc", (7, 0, 0, 1)
    good = part.read_bytes()
    assert sum(b.num_rows for b in bounded(str(tmp_path), MemoryLimits(limit))) == 120
    for position in range(0, len(good), 7):
        part.write_bytes(good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :])
        with pytest.raises(CorruptPart):
            list(bounded(str(tmp_path), MemoryLimits(limit)))
    # The size of the part is right, but the index has no checksum of the last frame.
    frames = [(ffq.frame(ffq.stream(batch)), batch.num_rows, 1) for batch in batches]
    entry = json.loads(ffq.entry_v2(0, f"{ffq.directory(id)}/part-0.ipc", "none", frames))
    entry["chunks"].pop()
    ffq.write_index(place, ffq.index_json(id, 1, [json.dumps(entry)]))
    part.write_bytes(good)
    with pytest.raises(CorruptPart, match="longer than the index's chunks"):
        list(bounded(str(tmp_path), MemoryLimits(limit)))
    with pytest.raises(CorruptPart, match="longer than the index's chunks"):
        check_part(Store(str(tmp_path)), registered_part(Store(str(tmp_path)), AttemptId(*id), 0))


def test_a_disk_without_room_is_not_the_parts_fault(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for compression in ("none", "zstd"):
        for payload in ("arrow", "ffqs"):
            place = f"{root}-{compression}-{payload}"
            written(place, 3_000, compression=compression, payload=payload)
            with monkeypatch.context() as patched, pytest.raises(StoreFailed) as caught:
                patched.setattr(tempfile, "TemporaryFile", full_disk)
                list(bounded(place, MemoryLimits(5_000)))
            assert "No space left on device" in str(caught.value)
            assert caught.value.path is None


def full_disk(*_: Any, **options: Any) -> Any:
    return open("/dev/full", "w+b", buffering=0)


def test_a_batch_on_disk_is_one_open_file(root: str) -> None:
    columns = {f"c{i}": [f"{i}-{n}" * 10 for n in range(500)] for i in range(40)}
    batch = pa.record_batch({"id": range(500), **columns})
    options = write_options(keys=("id",), partitions=1, compression="zstd")
    write_batches(root, [batch], options=options)
    before = len(os.listdir("/proc/self/fd"))
    batches = bounded(root, MemoryLimits(20_000))
    assert next(batches).num_columns == 41
    assert len(os.listdir("/proc/self/fd")) - before <= 4
