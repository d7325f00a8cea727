"""Verification finds every damage to a part: flipped bits, and cut, swapped or missing files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import ffq_reference as ffq
import pyarrow as pa
import pytest
from layouts import write_options
from stored_parts import stored_parts

from ffq_spark.errors import CorruptPart, FfqError
from ffq_spark.exchange.exchange import Exchange
from ffq_spark.exchange.read.parts import read_parts
from ffq_spark.exchange.scan.snapshot import take_snapshot
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.options import ReadOptions
from ffq_spark.store import Store

CODECS = [
    *product(["parts"], ["arrow", "ffqs"], ["none", "lz4", "zstd"]),
    ("packed", "arrow", "none"),
    ("packed", "ffqs", "zstd"),
]
FORMATS = ["-".join(codec) for codec in CODECS]


def rows(count: int) -> pa.RecordBatch:
    names = [f"{n * 7919:x}{n}" for n in range(count)]
    return pa.record_batch({"k": [n * 7919 for n in range(count)], "name": names})


class Damaged:
    """A small exchange, and one of its parts, which tests damage and restore."""

    def __init__(
        self,
        root: str,
        layout: str = "parts",
        payload: str = "arrow",
        compression: str = "none",
    ) -> None:
        options = write_options(
            keys=("k",), partitions=3, layout=layout, payload=payload, compression=compression
        )
        self.is_packed = layout == "packed"
        write_batches(root, [rows(90)], options=options)
        self.exchange = Exchange(root)
        self.snapshot = take_snapshot(Store(root), ReadOptions())
        self.part = self.snapshot.parts().slice(1, 1)
        self.file = Path(root) / self.part["file"][0].as_py()
        self.start = self.part["offset"][0].as_py()
        self.whole = self.file.read_bytes()
        self.good = self.whole[self.start : self.start + self.part["bytes"][0].as_py()]
        assert self.is_packed == (len(self.good) < len(self.whole)) == (self.start > 0)

    def read(self, verify: str) -> int:
        """Read the part and return its number of rows."""
        schema = self.snapshot.exchange.schema
        batches = read_parts(self.snapshot.store, self.part, schema, ReadOptions(verify=verify))
        return sum(batch.num_rows for batch in batches)

    def flips(self) -> Iterator[tuple[int, int]]:
        """Flip each bit of the part in turn, while the caller handles the yielded position."""
        descriptor = os.open(self.file, os.O_WRONLY)
        try:
            for position, byte in enumerate(self.good):
                for bit in range(8):
                    os.pwrite(descriptor, bytes([byte ^ 1 << bit]), self.start + position)
                    yield position, bit
                os.pwrite(descriptor, bytes([byte]), self.start + position)
        finally:
            os.close(descriptor)


@pytest.fixture(params=CODECS, ids=FORMATS)
def damaged(request: pytest.FixtureRequest, root: str) -> Damaged:
    return Damaged(root, *request.param)


def test_every_single_flipped_bit_is_noticed(damaged: Damaged) -> None:
    assert len(damaged.good) > 500
    looked_at = 0
    for _ in damaged.flips():
        with pytest.raises(CorruptPart) as caught:
            damaged.read("full")
        assert caught.value.path == str(damaged.file)
        looked_at += 1
    assert looked_at == 8 * len(damaged.good)
    assert damaged.read("full") == damaged.part["rows"][0].as_py()


def test_without_checksums_a_flipped_bit_never_changes_the_number_of_rows(
    damaged: Damaged,
) -> None:
    expected = damaged.part["rows"][0].as_py()
    for _ in damaged.flips():
        try:
            found = damaged.read("counts")
        except CorruptPart as error:
            assert error.path == str(damaged.file)
        else:
            assert found == expected


@pytest.mark.parametrize("verify", ["full", "counts"])
def test_a_cut_at_every_byte_is_noticed(damaged: Damaged, verify: str) -> None:
    for length in reversed(range(len(damaged.good))):
        os.truncate(damaged.file, damaged.start + length)
        with pytest.raises(CorruptPart, match=f"{length} bytes instead of {len(damaged.good)}"):
            damaged.read(verify)


@pytest.mark.parametrize("verify", ["full", "counts"])
@pytest.mark.parametrize("more", [b"\0", b"x" * 1000, b"\xff\xff\xff\xff\0\0\0\0"])
def test_appended_bytes_are_noticed(damaged: Damaged, verify: str, more: bytes) -> None:
    damaged.file.write_bytes(damaged.whole + more)
    with pytest.raises(CorruptPart, match="more bytes instead of") as caught:
        damaged.exchange.read(verify=verify).read_all()
    assert caught.value.path == str(damaged.file)
    (finding,) = damaged.exchange.verify().findings
    assert (finding.code, finding.path) == ("FFQ_CORRUPT_PART", str(damaged.file))


@pytest.mark.parametrize("verify", ["full", "counts", "none"])
def test_a_missing_part_is_noticed(damaged: Damaged, verify: str) -> None:
    damaged.file.unlink()
    with pytest.raises(CorruptPart, match="the part is missing") as caught:
        damaged.exchange.read(verify=verify).read_all()
    assert caught.value.path == str(damaged.file)


def test_two_parts_that_were_swapped_are_noticed(damaged: Damaged) -> None:
    if damaged.is_packed:
        damaged.file.write_bytes(damaged.whole[damaged.start :] + damaged.whole[: damaged.start])
        with pytest.raises(CorruptPart):
            damaged.exchange.read().read_all()
        assert len(damaged.exchange.verify().findings) == 3
        return
    others = [file for file in damaged.file.parent.glob("part-*") if file != damaged.file]
    for other in others:
        swapped = other.read_bytes()
        damaged.file.write_bytes(swapped)
        other.write_bytes(damaged.good)
        with pytest.raises(CorruptPart):
            damaged.exchange.read().read_all()
        assert len(damaged.exchange.verify().findings) == 2
        other.write_bytes(swapped)
    damaged.file.write_bytes(damaged.good)
    assert damaged.exchange.verify().ok


# --- cuts that Arrow itself does not detect ---------------------------------------------------


def message_boundaries(*batches: pa.RecordBatch) -> list[int]:
    """Return the lengths to which a stream of these batches can be cut and stay readable."""
    heads = [ffq.stream(*batches[: count + 1]) for count in range(len(batches))]
    end = 8
    return [len(ffq.stream(batches[0].slice(0, 0))) - end, *(len(head) - end for head in heads)]


def test_a_stream_cut_between_messages_is_noticed(tmp_path: Path) -> None:
    """The row count reveals the cut, even if the file is padded to its old size."""
    batches = [rows(5), rows(3), rows(4)]
    place = ffq.write_v1(tmp_path, (7, 0, 0, 1), {0: batches})
    part, exchange = place / "part-0.ipc", Exchange(str(tmp_path))
    good = part.read_bytes()
    shorter = []
    for cut in message_boundaries(*batches)[1:-1]:
        shorter.append(pa.ipc.open_stream(good[:cut]).read_all().num_rows)
        for data in (good[:cut], good[:cut] + bytes(len(good) - cut)):
            part.write_bytes(data)
            for verify in ("full", "counts"):
                with pytest.raises(CorruptPart, match="instead of") as caught:
                    exchange.read(verify=verify).read_all()
                assert caught.value.path == str(part)
    assert shorter == [5, 8]


def test_bits_of_a_part_without_checksum_never_escape_as_another_error(tmp_path: Path) -> None:
    """FFQ's version 1 has no checksum: a flipped bit may stay undetected, but no row is missing."""
    place = ffq.write_v1(tmp_path, (7, 0, 0, 1), {0: [rows(5)]})
    part, exchange = place / "part-0.ipc", Exchange(str(tmp_path))
    good = part.read_bytes()
    for position, byte in enumerate(good):
        part.write_bytes(good[:position] + bytes([byte ^ 1 << position % 8]) + good[position + 1 :])
        try:
            assert exchange.read().read_all().num_rows == 5
        except FfqError as error:
            assert error.path == str(part)


# --- all damage at once -----------------------------------------------------------------------


def test_verify_lists_all_damage(root: str) -> None:
    options = write_options(keys=("k",), partitions=6)
    for _ in range(3):
        write_batches(root, [rows(60)], options=options)
    exchange = Exchange(root)
    report = exchange.verify()
    assert (report.ok, report.steps, report.parts, report.rows) == (True, 3, 18, 180)
    first, second, third = exchange.steps()
    parts = stored_parts(root, steps="1")
    parts[0].destroy()
    parts[2].put(parts[3].read().ljust(parts[2].size)[: parts[2].size])
    parts[-1].put(parts[-1].read()[:-1])
    index = parts[0].file.with_name("index.bin")
    index.write_bytes(b"FFQI")
    manifest = Path(root) / second.body.manifest
    manifest.write_bytes(manifest.read_bytes()[:-1])
    last = Path(root) / exchange.parts(steps="3")["file"][0].as_py()
    last.write_bytes(last.read_bytes() + b"x")
    found = exchange.verify().findings
    expected = [
        ("FFQ_CORRUPT_PART", parts[0].file, parts[2].file, parts[-1].file, last),
        ("FFQ_CORRUPT_INDEX", index),
        ("FFQ_CORRUPT_RECORD", manifest),
    ]
    assert {(finding.code, finding.path) for finding in found} == {
        (code, str(path)) for code, *paths in expected for path in paths
    }
    assert len(found) == 6
    assert third.step == 3 and first.step == 1


def test_verify_finds_an_index_that_lists_other_parts(root: str) -> None:
    damaged = Damaged(root)
    step = damaged.exchange.steps()[0]
    id = (step.body.query, 0, 0, 1)
    ffq.write_index(damaged.file.parent, ffq.index_json(id, 1, []))
    (finding,) = damaged.exchange.verify().findings
    assert finding.path == str(damaged.file.parent)


def test_verify_finds_rows_in_the_wrong_partition(root: str) -> None:
    """Files and records agree, but a look-up would miss the misplaced rows."""
    damaged = Damaged(root)
    record = Path(root) / "_ffq/exchange.json"
    record.write_bytes(record.read_bytes().replace(b'"partitions": 3', b'"partitions": 7'))
    findings = damaged.exchange.verify().findings
    assert len(findings) == 3
    assert all("belong to another partition" in finding.message for finding in findings)
