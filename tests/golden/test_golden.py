"""Exchanges that earlier versions wrote are read, verified and appended to."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pyarrow as pa
import pytest
from golden_exchanges import FOLDER, LOG_STEPS, rows, weighted
from layouts import write_options

from ffq_spark import Exchange
from ffq_spark.errors import ReplayMismatch
from ffq_spark.exchange.write.local_write import write_batches

ARCHIVES = sorted(FOLDER.glob("*.tar.gz"))
PLAIN = ("parts", "packed", "ffq", "compressed")


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def by_id(table: pa.Table) -> list[dict[str, object]]:
    return table.sort_by("id").to_pylist()


def written(*batches: pa.RecordBatch) -> list[dict[str, object]]:
    return by_id(pa.Table.from_batches(batches))


def test_there_is_an_archive() -> None:
    assert ARCHIVES


@pytest.mark.parametrize("name", PLAIN)
def test_rows_are_read_looked_up_and_verified(golden: Path, name: str) -> None:
    exchange = Exchange(str(golden / name))
    assert by_id(exchange.read().read_all()) == written(rows(0), rows(10))
    assert by_id(exchange.read(as_of_step=1).read_all()) == written(rows(0))
    key = (7, "name 7") if name == "packed" else 7
    assert exchange.lookup(key).to_pylist() == rows(7, 1).to_pylist()
    assert exchange.verify().ok


@pytest.mark.parametrize("name", PLAIN)
def test_rows_are_appended_and_cleaned(golden: Path, name: str) -> None:
    root = str(golden / name)
    step = write_batches(root, [rows(20)], options=write_options())
    assert step is not None and step.step == 3
    assert Exchange(root).gc(0).problems == []
    assert by_id(Exchange(root).read().read_all()) == written(rows(0), rows(10), rows(20))
    assert Exchange(root).verify().ok


def test_a_stream_goes_on_where_it_was(golden: Path) -> None:
    root = str(golden / "stream")

    def write(batch: int, first: int) -> object:
        options = write_options(stream_id="golden", stream_run="first", batch=batch)
        return write_batches(root, [rows(first)], options=options)

    assert write(2, 20) is None
    with pytest.raises(ReplayMismatch):
        write(2, 70)
    assert write(3, 30) is not None
    expected = written(*(rows(10 * batch) for batch in range(4)))
    assert by_id(Exchange(root).read().read_all()) == expected
    assert [(hold.name, hold.step) for hold in Exchange(root).holds()] == [("golden-hold", 2)]


def test_versions_are_read_and_rolled_back(golden: Path) -> None:
    exchange = Exchange(str(golden / "versions"))
    assert by_id(exchange.read().read_all()) == written(rows(0))
    assert by_id(exchange.read(as_of_step=2).read_all()) == written(rows(10))
    assert exchange.rollback(2).step == 4
    assert by_id(exchange.read().read_all()) == written(rows(10))


def test_a_zset_is_consolidated(golden: Path) -> None:
    root = str(golden / "zset")
    assert by_id(Exchange(root).read(consolidate=True).read_all()) == written(
        weighted([2, 3], [1, 1])
    )
    write_batches(root, [weighted([2], [-1])], options=write_options())
    consolidated = Exchange(root).read(consolidate=True).read_all()
    assert by_id(consolidated) == written(weighted([3], [1]))


def test_a_log_with_a_checkpoint_is_read_and_goes_on(golden: Path) -> None:
    root = str(golden / "log")
    assert list((golden / "log" / "_ffq" / "checkpoints").rglob("*64*"))
    write_batches(root, [rows(LOG_STEPS, 1)], options=write_options())
    assert by_id(Exchange(root).read().read_all()) == written(rows(0, LOG_STEPS + 1))
