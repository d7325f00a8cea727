"""Verification finds grown, swapped and missing files, and lists all damage of an exchange."""

from __future__ import annotations

from pathlib import Path

import ffq_reference as ffq
import numpy as np
import pyarrow as pa
import pytest
from damaged_part import CODECS, FORMATS, Damaged, rows
from layouts import write_options
from stored_parts import stored_parts

from ffq_spark.errors import CorruptPart
from ffq_spark.exchange.exchange import Exchange
from ffq_spark.exchange.write.local_write import write_batches


@pytest.fixture(params=CODECS, ids=FORMATS)
def damaged(request: pytest.FixtureRequest, root: str) -> Damaged:
    return Damaged(root, *request.param)


@pytest.mark.parametrize("verify", ["full", "counts"])
@pytest.mark.parametrize("more", [b"\0", b"x" * 1000, b"\xff\xff\xff\xff\0\0\0\0"])
def test_appended_bytes_are_noticed(damaged: Damaged, verify: str, more: bytes) -> None:
    damaged.file.write_bytes(damaged.whole + more)
    with pytest.raises(CorruptPart, match="longer than the committed parts") as caught:
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
    findings = exchange.verify().findings
    expected = [
        ("FFQ_CORRUPT_PART", parts[0].file, parts[2].file, parts[-1].file, last),
        ("FFQ_CORRUPT_INDEX", index),
        ("FFQ_CORRUPT_RECORD", manifest),
    ]
    assert {(finding.code, finding.path) for finding in findings} == {
        (code, str(path)) for code, *paths in expected for path in paths
    }
    assert len(findings) == 6
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
    (record,) = (Path(root) / "_ffq/steps").iterdir()
    record.write_bytes(record.read_bytes().replace(b'"partitions": 3', b'"partitions": 7'))
    findings = damaged.exchange.verify().findings
    assert len(findings) == 3
    assert all("belong to another partition" in finding.message for finding in findings)


def test_verify_finds_offsets_outside_the_data(root: str) -> None:
    """The checksum agrees with the bytes, but a reader of the texts would crash."""
    offsets = np.arange(1_001, dtype=np.int32) * 4
    offsets[500] = 1 << 30
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"abcd" * 1_000)]
    texts = pa.Array.from_buffers(pa.string(), 1_000, buffers)
    write_batches(root, [pa.record_batch({"s": texts})], options=write_options(partitions=1))
    (finding,) = Exchange(root).verify().findings
    assert finding.code == "FFQ_CORRUPT_PART" and "not valid Arrow data" in finding.message
