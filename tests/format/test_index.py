"""Indexes have FFQ's exact bytes, compared with text built from the format's description."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import ffq_reference as ffq
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from layouts import write_options

from ffq_spark.errors import CorruptIndex
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.format.hashing import partition_ids
from ffq_spark.format.ids import now_ms
from ffq_spark.format.index import Chunk, IndexEntry, MapTaskIndex
from ffq_spark.format.paths import MAX_ATTEMPT, AttemptId

QUERY = (1 << 62) + 1
ATTEMPT = (QUERY, 3, 0, 1)


def rows(count: int) -> pa.RecordBatch:
    return pa.record_batch({"k": list(range(count)), "name": [f"row {n}" for n in range(count)]})


def write(root: str, batch: pa.RecordBatch, payload: str, compression: str) -> Path:
    options = write_options(
        keys=("k",),
        partitions=3,
        payload=payload,
        compression=compression,
        layout="parts",
        query=QUERY,
        stage=3,
    )
    write_batches(root, [batch], options=options)
    return Path(root) / "shuffle" / str(QUERY) / "3" / "0" / "1"


def partition(batch: pa.RecordBatch, reduce: int) -> pa.RecordBatch:
    return batch.filter(pa.array(partition_ids([batch["k"]], 3) == reduce))


def created_at(place: Path) -> int:
    match = re.search(rb'"created_at_ms": ([0-9]+),', (place / "index.json").read_bytes())
    assert match
    return int(match[1])


def test_version_1_index_is_byte_for_byte_as_ffq_writes_it(root: str) -> None:
    batch, before = rows(20), now_ms()
    place = write(root, batch, "arrow", "none")
    entries = []
    for reduce in range(3):
        expected = partition(batch, reduce)
        assert 0 < expected.num_rows < 20
        data = (place / f"part-{reduce}.ipc").read_bytes()
        assert pa.ipc.open_stream(data).read_all().equals(pa.Table.from_batches([expected]))
        file = f"shuffle/{QUERY}/3/0/1/part-{reduce}.ipc"
        entries.append(ffq.entry_v1(reduce, file, len(data), expected.num_rows, 1))
    document = ffq.index_json(ATTEMPT, created_at(place), entries)
    assert (place / "index.json").read_bytes() == document
    assert (place / "index.bin").read_bytes() == ffq.index_bin(document)
    assert before <= created_at(place) <= now_ms()


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_version_2_index_is_byte_for_byte_as_ffq_writes_it(root: str, codec: str) -> None:
    batch = rows(20)
    place = write(root, batch, "ffqs", codec)
    entries = []
    for reduce in range(3):
        expected = partition(batch, reduce)
        data = (place / f"part-{reduce}.ipc").read_bytes()
        *header, length, packed = struct.unpack_from("<4sBBBBQQ", data)
        body = data[ffq.FRAME_HEADER_BYTES :]
        assert header == [b"FFQS", 1, ffq.CODECS[codec], 0, 0] and packed == len(body)
        unpacked = body if codec == "none" else pa.decompress(body, length, codec, asbytes=True)
        assert pa.ipc.open_stream(unpacked).read_all().equals(pa.Table.from_batches([expected]))
        file = f"shuffle/{QUERY}/3/0/1/part-{reduce}.ipc"
        entries.append(ffq.entry_v2(reduce, file, codec, [(data, expected.num_rows, 1)]))
    document = ffq.index_json(ATTEMPT, created_at(place), entries)
    assert (place / "index.json").read_bytes() == document
    assert (place / "index.bin").read_bytes() == ffq.index_bin(document)


@pytest.mark.parametrize("payload", ["arrow", "ffqs"])
def test_a_map_task_without_rows_has_an_index_with_an_empty_list(root: str, payload: str) -> None:
    place = write(root, rows(0), payload, "none")
    document = ffq.index_json(ATTEMPT, created_at(place), [])
    assert (place / "index.json").read_bytes() == document
    assert (place / "index.bin").read_bytes() == ffq.index_bin(document)
    assert sorted(file.name for file in place.iterdir()) == ["index.bin", "index.json"]


# --- reading ----------------------------------------------------------------------------------


DOCUMENT = ffq.index_json(
    (7, 0, 3, 1), 99, [ffq.entry_v1(2, "shuffle/7/0/3/1/part-2.ipc", 10, 5, 1)]
)
ENTRY = IndexEntry(2, "shuffle/7/0/3/1/part-2.ipc", 10, 5, 1)


def test_both_files_read_as_the_same_index() -> None:
    expected = MapTaskIndex(AttemptId(7, 0, 3, 1), 99, (ENTRY,))
    assert MapTaskIndex.from_json(DOCUMENT, "index.json") == expected
    assert MapTaskIndex.from_bin(ffq.index_bin(DOCUMENT), "index.bin") == expected


def test_what_follows_the_payload_of_index_bin_is_ignored() -> None:
    data = ffq.index_bin(DOCUMENT) + b"a trailer"
    assert MapTaskIndex.from_bin(data, "index.bin").entries == (ENTRY,)


def test_unknown_keys_are_ignored_and_a_missing_time_is_0() -> None:
    document = json.loads(DOCUMENT)
    del document["created_at_ms"]
    document["later"] = {"a": [1]}
    document["partitions"][0]["later"] = None
    index = MapTaskIndex.from_json(json.dumps(document).encode(), "index.json")
    assert index == MapTaskIndex(AttemptId(7, 0, 3, 1), 0, (ENTRY,))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "index.bin is too small to contain header"),
        (b"FFQI" + struct.pack("<I", 1) + b"abc", "index.bin is too small to contain header"),
        (b"FFQX" + struct.pack("<II", 1, 2) + b"{}", "invalid index.bin magic"),
        (
            b"FFQI" + struct.pack("<II", 1, len(DOCUMENT) + 1) + DOCUMENT,
            "index.bin payload length is invalid",
        ),
        (b"FFQI" + struct.pack("<II", 1, 2) + b"{}", "index.bin decode failed: "),
        (b"FFQI" + struct.pack("<II", 1, 3) + b"\xff{}", "index.bin decode failed: "),
        (b"FFQI" + struct.pack("<II", 2, len(DOCUMENT)) + DOCUMENT, "index.bin decode failed: "),
    ],
    ids=["empty", "short", "magic", "length", "no-fields", "no-utf8", "version"],
)
def test_a_bad_index_bin_is_refused_in_ffqs_words(data: bytes, text: str) -> None:
    with pytest.raises(CorruptIndex) as caught:
        MapTaskIndex.from_bin(data, "some/index.bin")
    assert caught.value.message.startswith(text)
    assert caught.value.path == "some/index.bin"


def test_an_index_json_cut_anywhere_is_refused_in_ffqs_words() -> None:
    for cut in range(len(DOCUMENT)):
        with pytest.raises(CorruptIndex, match="index json decode failed: ") as caught:
            MapTaskIndex.from_json(DOCUMENT[:cut], "some/index.json")
        assert caught.value.path == "some/index.json"


@pytest.mark.parametrize("field", ["query_id", "stage_id", "map_task", "attempt", "partitions"])
def test_a_missing_field_is_named(field: str) -> None:
    document = json.loads(DOCUMENT)
    del document[field]
    with pytest.raises(CorruptIndex, match=f"missing field '{field}'"):
        MapTaskIndex.from_json(json.dumps(document).encode(), "index.json")


@pytest.mark.parametrize("field", ["reduce_partition", "bytes", "rows", "batches", "file"])
@pytest.mark.parametrize("value", [-1, 1.5, None, True, [], {}, 1 << 64])
def test_a_field_of_the_wrong_kind_is_named(field: str, value: object) -> None:
    document = json.loads(DOCUMENT)
    document["partitions"][0][field] = value
    with pytest.raises(CorruptIndex, match=field):
        MapTaskIndex.from_json(json.dumps(document).encode(), "index.json")


@pytest.mark.parametrize("body", [b"[]", b"null", b"3", b'"x"', b'{"partitions": 3}'])
def test_json_that_is_no_index_is_refused(body: bytes) -> None:
    with pytest.raises(CorruptIndex, match="index json decode failed: "):
        MapTaskIndex.from_json(body, "index.json")


@pytest.mark.parametrize("partitions", [3, None, "x", [3], [[]], ["x"], [None], {"a": 1}])
def test_partitions_that_are_no_list_of_entries_are_refused(partitions: object) -> None:
    document = json.loads(DOCUMENT) | {"partitions": partitions}
    with pytest.raises(CorruptIndex, match="index json decode failed: "):
        MapTaskIndex.from_json(json.dumps(document).encode(), "index.json")


@pytest.mark.parametrize("chunks", [3, None, "x", [3], [{}], [{"offset_bytes": "1"}]])
def test_chunks_that_are_no_list_of_chunks_are_refused(chunks: object) -> None:
    document = json.loads(DOCUMENT)
    document["partitions"][0]["chunks"] = chunks
    with pytest.raises(CorruptIndex, match="index json decode failed: "):
        MapTaskIndex.from_json(json.dumps(document).encode(), "index.json")


def test_an_unknown_codec_and_a_partition_listed_twice_are_refused() -> None:
    document = json.loads(DOCUMENT)
    document["partitions"] *= 2
    with pytest.raises(CorruptIndex, match="listed twice"):
        MapTaskIndex.from_json(json.dumps(document).encode(), "index.json")
    document["partitions"] = [{**document["partitions"][0], "codec": "brotli"}]
    with pytest.raises(CorruptIndex, match="brotli"):
        MapTaskIndex.from_json(json.dumps(document).encode(), "index.json")


# --- round trip -------------------------------------------------------------------------------

u64 = st.integers(0, (1 << 64) - 1)
sizes = st.integers(0, (1 << 63) - 1)
chunks = st.builds(Chunk, sizes, sizes, sizes, sizes, sizes, sizes, st.integers(0, (1 << 32) - 1))


@st.composite
def entries(draw: st.DrawFn, reduce: int) -> IndexEntry:
    file, size, count, batches = draw(st.text()), draw(sizes), draw(sizes), draw(sizes)
    codec = draw(st.sampled_from([None, "none", "lz4", "zstd"]))
    if codec is None:
        return IndexEntry(reduce, file, size, count, batches)
    part_chunks = tuple(draw(st.lists(chunks, max_size=3)))
    return IndexEntry(
        reduce, file, size, count, batches, codec, draw(sizes), draw(sizes), part_chunks
    )


@st.composite
def indexes(draw: st.DrawFn) -> MapTaskIndex:
    id = AttemptId(draw(u64), draw(u64), draw(u64), draw(st.integers(1, MAX_ATTEMPT)))
    reduces = sorted(draw(st.sets(st.integers(0, 9_999), max_size=4)))
    return MapTaskIndex(id, draw(u64), tuple(draw(entries(reduce)) for reduce in reduces))


@given(indexes())
def test_every_index_reads_back_as_it_was(index: MapTaskIndex) -> None:
    assert MapTaskIndex.from_json(index.to_json(), "index.json") == index
    assert MapTaskIndex.from_bin(index.to_bin(), "index.bin") == index
    assert index.to_bin()[12:] == index.to_json()


@given(st.binary(max_size=64) | st.binary(max_size=64).map(ffq.index_bin))
def test_no_bytes_escape_the_typed_error(data: bytes) -> None:
    for parse in (MapTaskIndex.from_bin, MapTaskIndex.from_json):
        with pytest.raises(CorruptIndex):
            parse(data, "index")
