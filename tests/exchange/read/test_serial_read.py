"""Parts are verified before their rows: every flipped bit and every cut raises an error."""

from __future__ import annotations

import os
from pathlib import Path

import ffq_reference as ffq
import pyarrow as pa
import pytest
from damaged_part import CODECS, FORMATS, Damaged, rows

from ffq_spark.errors import CorruptPart, FfqError
from ffq_spark.exchange.exchange import Exchange
from ffq_spark.exchange.read.serial_read import read_parts
from ffq_spark.options import ReadOptions


@pytest.fixture(params=CODECS, ids=FORMATS)
def damaged(request: pytest.FixtureRequest, root: str) -> Damaged:
    return Damaged(root, *request.param)


def test_parts_come_in_their_order_each_whole_before_the_next(root: str) -> None:
    """The parts before a damaged one are returned; the damaged one returns no row at all."""
    damaged = Damaged(root)
    parts = damaged.snapshot.parts()
    start = damaged.start + len(damaged.good) // 2
    damaged.file.write_bytes(damaged.whole[:start] + b"\xff" * 8 + damaged.whole[start + 8 :])
    batches = read_parts(
        damaged.snapshot.store, parts, damaged.snapshot.exchange.schema, ReadOptions(credits=1)
    )
    returned = 0
    with pytest.raises(CorruptPart) as caught:
        for batch in batches:
            returned += batch.num_rows
    assert caught.value.path == str(damaged.file)
    assert returned == parts["rows"][0].as_py()


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
            rows = damaged.read("counts")
        except CorruptPart as error:
            assert error.path == str(damaged.file)
        else:
            assert rows == expected


@pytest.mark.parametrize("verify", ["full", "counts"])
def test_a_cut_at_every_byte_is_noticed(damaged: Damaged, verify: str) -> None:
    for length in reversed(range(len(damaged.good))):
        os.truncate(damaged.file, damaged.start + length)
        with pytest.raises(CorruptPart, match=f"fewer than the committed {len(damaged.good)} by"):
            damaged.read(verify)


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
            message = "fewer than the committed" if len(data) < len(good) else "instead of"
            for verify in ("full", "counts"):
                with pytest.raises(CorruptPart, match=message) as caught:
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
