"""Damaged records raise a typed error that names the file, and never change the rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from layouts import write_options

from ffq_spark.errors import CorruptPart, CorruptRecord, FutureFormat, StepNotFound
from ffq_spark.exchange.exchange import Exchange
from ffq_spark.exchange.write.local_write import write_batches


def rows(first: int) -> pa.RecordBatch:
    numbers = list(range(first, first + 6))
    return pa.record_batch({"k": numbers, "name": [f"row {n}" for n in numbers]})


@pytest.fixture
def exchange(root: str) -> Exchange:
    """Write step 1, step 2 that replaces it, and steps 3 and 4 that append to step 2."""
    for first in (0, 10, 20, 30):
        mode = "replace" if first == 10 else "append"
        write_batches(
            root, [rows(first)], options=write_options(keys=("k",), partitions=4), mode=mode
        )
    return Exchange(root)


VISIBLE = sorted([*range(10, 16), *range(20, 26), *range(30, 36)])
RECORDS = {
    "format": lambda exchange: "_ffq/format.json",
    "exchange": lambda exchange: "_ffq/exchange.json",
    "newest step": lambda exchange: f"_ffq/steps/{4:020d}.json",
    "older step": lambda exchange: f"_ffq/steps/{3:020d}.json",
    "newest manifest": lambda exchange: exchange.steps()[3].body.manifest,
    "older manifest": lambda exchange: exchange.steps()[1].body.manifest,
}


FLIPPED = ["format", "exchange", "newest step", "newest manifest"]


@pytest.fixture(params=RECORDS)
def record(request: pytest.FixtureRequest, exchange: Exchange) -> Path:
    return Path(exchange.root) / RECORDS[request.param](exchange)


def keys(exchange: Exchange) -> list[int]:
    return sorted(exchange.read().read_all()["k"].to_pylist())


def test_a_record_cut_anywhere_is_an_error_that_names_it(exchange: Exchange, record: Path) -> None:
    good = record.read_bytes()
    assert keys(exchange) == VISIBLE
    for length in range(0, len(good.rstrip()), 1 if record.suffix == ".json" else 11):
        record.write_bytes(good[:length])
        with pytest.raises(CorruptRecord) as caught:
            keys(exchange)
        assert caught.value.path == str(record)


@pytest.mark.parametrize("record", FLIPPED, indirect=True)
def test_a_flipped_bit_of_a_record_never_changes_the_rows(exchange: Exchange, record: Path) -> None:
    """The read raises an error with a path, or the bit has no influence on the rows."""
    good = record.read_bytes()
    step = 1 if record.suffix == ".json" else 37
    errors = 0
    for bit in range(0, len(good) * 8, step):
        flipped = bytearray(good)
        flipped[bit // 8] ^= 1 << bit % 8
        record.write_bytes(flipped)
        try:
            assert keys(exchange) == VISIBLE
        except (CorruptRecord, CorruptPart, FutureFormat) as error:
            assert error.path
            errors += 1
    assert errors > len(good) * 8 / step / 2


# A missing newest step cannot be detected: the log is a shorter, valid log.
@pytest.mark.parametrize(
    "record", [name for name in RECORDS if name != "newest step"], indirect=True
)
def test_a_missing_record_is_an_error_that_names_it(exchange: Exchange, record: Path) -> None:
    record.unlink()
    with pytest.raises((StepNotFound, CorruptRecord)) as caught:
        keys(exchange)
    assert caught.value.path == str(record)


@pytest.mark.parametrize("name", ["format.json", "exchange.json"])
@pytest.mark.parametrize("data", [None, b"", b"{}"], ids=["missing", "empty", "another"])
def test_nothing_is_written_to_an_exchange_whose_founding_records_are_damaged(
    exchange: Exchange, name: str, data: bytes | None
) -> None:
    record = Path(exchange.root) / "_ffq" / name
    good = record.read_bytes()
    record.unlink()
    if data is not None:
        record.write_bytes(data)
    with pytest.raises(CorruptRecord) as caught:
        options = write_options(keys=("k",), partitions=9)
        write_batches(exchange.root, [rows(50)], options=options)
    assert caught.value.path == str(record)
    record.write_bytes(good)
    assert keys(exchange) == VISIBLE


def test_a_record_of_another_step_is_refused(exchange: Exchange) -> None:
    steps = Path(exchange.root) / "_ffq/steps"
    (steps / f"{4:020d}.json").write_bytes((steps / f"{3:020d}.json").read_bytes())
    with pytest.raises(CorruptRecord, match="the record is of step 3"):
        keys(exchange)


def test_steps_that_disagree_about_where_they_begin_are_refused(exchange: Exchange) -> None:
    """A later base would hide rows, and an earlier base would show replaced rows."""
    newest = Path(exchange.root) / "_ffq/steps" / f"{4:020d}.json"
    good = newest.read_bytes()
    for base in (1, 3):
        newest.write_bytes(good.replace(b'"base": 2', b'"base": %d' % base))
        message = f"step 4 has base {base}, but step . of the same version has base"
        with pytest.raises(CorruptRecord, match=message) as caught:
            keys(exchange)
        assert caught.value.path == str(newest)
