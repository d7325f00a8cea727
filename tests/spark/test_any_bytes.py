"""Strings of any bytes, valid UTF-8 or not, are stored unchanged and compared byte by byte."""

from __future__ import annotations

from typing import Any

import pytest
from spark_rows import read, write

from ffq_spark import Exchange

pytestmark = pytest.mark.spark

# Invalid bytes, half a character and a surrogate, among valid texts, in byte order.
VALUES = [b"", b"a", b"a\x80", b"\xc3", b"\xed\xa0\x80", "\ufffd".encode(), "😀".encode(), b"\xff"]


@pytest.fixture(scope="module")
def texts(spark: Any) -> Any:
    rows = [(bytearray(value), number) for number, value in enumerate(VALUES * 2)]
    frame = spark.createDataFrame([*rows, (None, -1)], "b BINARY, v LONG")
    return frame.selectExpr("CAST(b AS STRING) AS s", "v").cache()


@pytest.fixture(scope="module", params=["spark", "ffq"])
def written(spark: Any, texts: Any, request: Any, tmp_path_factory: Any) -> Any:
    """Write the texts as keys, sorted and with statistics; each partition is one part."""
    root = str(tmp_path_factory.mktemp("texts") / request.param)
    options = {"keys": "s", "partitions": 8, "hash": request.param}
    write(texts.coalesce(1), root, **options, sortBy="s", statistics="all")
    return read(spark, root), root


def shown(frame: Any) -> list[tuple[Any, ...]]:
    hex_rows = frame.selectExpr("hex(CAST(s AS BINARY))", "v").collect()
    return sorted((row[0] or "null", row[1]) for row in hex_rows)


def literal(value: bytes) -> str:
    return f"CAST(X'{value.hex()}' AS STRING)"


def test_every_row_comes_back(texts: Any, written: Any) -> None:
    frame, root = written
    assert shown(frame) == shown(texts)
    assert Exchange(root).verify().ok


@pytest.mark.parametrize("op", ["=", "<=", ">="])
@pytest.mark.parametrize("value", [b"\xc3", b"\xff", "\ufffd".encode()], ids=repr)
def test_a_filter_finds_what_spark_finds(texts: Any, written: Any, op: str, value: bytes) -> None:
    condition = f"s {op} {literal(value)}"
    assert shown(written[0].where(condition)) == shown(texts.where(condition)) != []


def test_more_filters(texts: Any, written: Any) -> None:
    some = ", ".join(map(literal, VALUES[2:5]))
    for condition in (f"s IN ({some})", f"s <=> {literal(VALUES[3])}", "s IS NULL", "s = 'a'"):
        assert shown(written[0].where(condition)) == shown(texts.where(condition)) != []


def test_the_least_and_the_greatest_are_sparks(spark: Any, texts: Any, root: str) -> None:
    columns = ["count(s)", "hex(CAST(min(s) AS BINARY))", "hex(CAST(max(s) AS BINARY))"]
    for condition in ("v % 8 IN (1, 4, 6)", "v % 8 < 7", "v >= -1"):
        some = texts.where(condition)
        write(some, root, "overwrite", keys="v", partitions=2, statistics="all")
        bounds = read(spark, root).selectExpr(*columns)
        assert bounds.collect() == some.selectExpr(*columns).collect()


def test_joins_find_what_spark_finds(texts: Any, written: Any) -> None:
    few = texts.where("v BETWEEN 2 AND 4").select("s")
    assert shown(written[0].join(few, "s")) == shown(texts.join(few, "s")) != []
