"""Strings of any bytes, as Spark allows them, are accepted and ordered by their bytes."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from layouts import write_options

from ffq_spark import Exchange
from ffq_spark.cli.main import main
from ffq_spark.errors import BadOption
from ffq_spark.exchange.compute.bounds import bounds
from ffq_spark.exchange.scan.snapshot import take_snapshot
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.options import ReadOptions
from ffq_spark.store import Store

VALUES = [b"", b"a", b"a\x80", b"\xc3", b"\xed\xa0\x80", "\ufffd".encode(), "😀".encode(), b"\xff"]


def texts(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary()).view(pa.string())


def write(root: str, *values: bytes | None, **options: Any) -> Exchange:
    batch = pa.record_batch({"s": texts(*values), "v": list(range(len(values)))})
    given = {"keys": ("s",), "partitions": 8, "statistics": ("all",), **options}
    write_batches(root, [batch], options=write_options(**given))
    return Exchange(root)


def raw(table: pa.Table) -> list[bytes | None]:
    return [v for chunk in table["s"].chunks for v in chunk.view(pa.binary()).to_pylist()]


@pytest.mark.parametrize("hash", ["spark", "ffq"])
@pytest.mark.parametrize("payload", ["arrow", "ffqs"])
def test_all_rows_are_written_read_and_found(root: str, hash: str, payload: str) -> None:
    exchange = write(root, *VALUES, None, hash=hash, payload=payload, sort_by=("s",))
    values = raw(exchange.read().read_all())
    assert set(values) == {None, *VALUES} and len(values) == len(VALUES) + 1
    assert exchange.verify().ok
    for value in VALUES:
        assert raw(exchange.lookup(value)) == [value]
        assert raw(exchange.lookup(value.decode("utf-8", "surrogateescape"))) == [value]
    assert raw(exchange.lookup(None)) == [None]
    assert raw(exchange.lookup(b"\xfe")) == []
    (query,) = (step.body.query for step in exchange.steps())
    assert len(raw(exchange.read(query=query).read_all())) == len(VALUES) + 1


def test_a_key_that_is_no_text_is_refused(root: str) -> None:
    exchange = write(root, *VALUES)
    for key in ("\ud800", 5):
        with pytest.raises(BadOption):
            exchange.lookup(key)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([b"a", None, "😀".encode(), "\ufffd".encode()], ("a", "😀")),
        ([b"a", b"\xff"], None),
        ([b"\x80", "😀".encode()], None),
        ([b"\xed\xa0\x80\xff", b"a", "😀".encode()], ("a", "😀")),
        ([None], (None, None)),
    ],
)
def test_bounds_are_known_if_they_are_text(
    root: str, values: list[bytes | None], expected: tuple[Any, Any] | None
) -> None:
    write(root, *values)
    snapshot = take_snapshot(Store(root), ReadOptions())
    bounds_by_column = bounds(snapshot.part_tables(), ["s", "v"])
    known = bounds_by_column.get("s")
    assert (None if known is None else (known.least, known.greatest)) == expected
    assert bounds_by_column["v"].greatest == len(values) - 1


def test_the_command_line_shows_bytes_that_are_no_text(root: str) -> None:
    write(root, *VALUES)
    key = b"a\x80".decode("utf-8", "surrogateescape")
    runner = CliRunner()
    result = runner.invoke(main, ["lookup", "--json", root, key])
    assert result.exit_code == 0 and json.loads(result.stdout) == [{"s": "a\\x80", "v": 2}]
    result = runner.invoke(main, ["lookup", root, key])
    assert result.exit_code == 0 and "a\\x80" in result.stdout
    assert runner.invoke(main, ["lookup", root, "\udcfe"]).exit_code == 1
