"""The bytes of parts are verified, in order, and only from the exchange's data."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ffq_spark.errors import CorruptPart, CorruptRecord, StepExpired
from ffq_spark.exchange.read.column_ranges import ColumnSelection
from ffq_spark.exchange.read.fetch import fetch_part, fetch_parts, fetch_range
from ffq_spark.exchange.read.part import Part
from ffq_spark.format import paths
from ffq_spark.format.payload import checksum
from ffq_spark.store import ReadTotals, Store

FILE = "shuffle/7/0/0/1/part-0.ipc"
SCHEMA = pa.schema([("k", pa.int64())])
COLUMNS = ColumnSelection(SCHEMA, ["k"], local=True)


@pytest.fixture
def store(root: str) -> Store:
    """Write one file with two parts of five bytes."""
    store = Store(root)
    store.write(FILE, [b"firstother"])
    return store


def part(offset: int, data: bytes, **values: object) -> Part:
    ends = offset == 5
    return Part(FILE, offset, len(data), ends_file=ends, checksum=checksum(pa.py_buffer(data)))


FIRST, OTHER = part(0, b"first"), part(5, b"other")


def table(*parts: Part) -> pa.Table:
    names = [name for name in Part._fields if name != "chunks"]
    return pa.table({name: [getattr(part, name) for part in parts] for name in names})


def fetched(store: Store, *parts: Part, verify: str = "full") -> list[bytes]:
    pairs = fetch_parts(store, table(*parts), verify, 1 << 20, ReadTotals(), COLUMNS)
    return [bytes(data) for _, data in pairs]


def test_parts_of_one_file_are_one_request_and_come_apart(store: Store) -> None:
    totals = ReadTotals()
    pairs = fetch_parts(store, table(OTHER, FIRST), "full", 1 << 20, totals, COLUMNS)
    assert [(part.offset, bytes(data)) for part, data in pairs] == [(0, b"first"), (5, b"other")]
    assert (totals.requests, totals.bytes) == (1, 10)


@pytest.mark.parametrize("verify", ["full", "counts", "none"])
def test_bytes_are_compared_as_far_as_was_asked(store: Store, verify: str) -> None:
    store.write(FILE, [b"FIRSTother"])
    if verify == "full":
        with pytest.raises(CorruptPart, match="checksum mismatch"):
            fetched(store, FIRST, OTHER, verify=verify)
    else:
        assert fetched(store, FIRST, OTHER, verify=verify) == [b"FIRST", b"other"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"firstoth", "ends inside the part: fewer than the committed 5 bytes"),
        (b"firstother!", "longer than the committed parts"),
    ],
)
def test_a_file_that_was_cut_or_has_grown_is_an_error(
    store: Store, data: bytes, message: str
) -> None:
    store.write(FILE, [data])
    with pytest.raises(CorruptPart, match=message):
        fetched(store, FIRST, OTHER, verify="counts")
    with pytest.raises(CorruptPart, match=message):
        fetch_part(store, OTHER)


def test_a_range_of_a_part_asks_for_one_byte_more_only_at_the_files_end(store: Store) -> None:
    store.write(FILE, [b"firstother!"])
    assert bytes(fetch_range(store, FIRST, 1, 4)) == b"irst"
    assert bytes(fetch_range(store, OTHER, 0, 4)) == b"othe"
    assert bytes(fetch_range(store, OTHER, 2, 3)) == b"her!"


def test_a_file_that_is_gone_is_damage_unless_its_step_expired(store: Store) -> None:
    store.delete(FILE)
    of_step = FIRST._replace(step=3)
    for read in (lambda: fetched(store, of_step), lambda: [fetch_part(store, of_step)]):
        with pytest.raises(CorruptPart, match="the part is missing") as caught:
            read()
        assert caught.value.path == store.url(FILE)
    store.write(paths.expired(3), [b"{}"])
    for read in (lambda: fetched(store, of_step), lambda: [fetch_part(store, of_step)]):
        with pytest.raises(StepExpired):
            read()


@pytest.mark.parametrize("file", ["_ffq/exchange.json", "../secret", "/etc/hostname", "part-0.ipc"])
def test_no_manifest_makes_a_reader_open_other_files(store: Store, file: str) -> None:
    elsewhere = FIRST._replace(file=file)
    for read in (lambda: fetched(store, elsewhere), lambda: [fetch_part(store, elsewhere)]):
        with pytest.raises(CorruptRecord, match="outside the exchange's data"):
            read()
