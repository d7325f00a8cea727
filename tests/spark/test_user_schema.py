"""A schema from the user must not turn nulls into values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from spark_rows import SOURCE, bare_source, failure, loose_schema, read, write

pytestmark = pytest.mark.spark

STRICT = "k BIGINT NOT NULL, v INT NOT NULL"
NESTED = (
    "k BIGINT NOT NULL, s STRUCT<a: INT NOT NULL, l: ARRAY<STRUCT<b: INT NOT NULL>>> NOT NULL, "
    "m MAP<STRING, STRUCT<c: INT NOT NULL>> NOT NULL"
)
LOOSE_ROWS = (
    "SELECT 1L AS k, NAMED_STRUCT('a', 5, 'l', ARRAY(NAMED_STRUCT('b', 6))) AS s, "
    "MAP('x', NAMED_STRUCT('c', 7)) AS m "
    "UNION ALL SELECT 2L, NAMED_STRUCT('a', NULL, 'l', ARRAY(NAMED_STRUCT('b', NULL))), "
    "MAP('x', NAMED_STRUCT('c', NULL)) "
    "UNION ALL SELECT 3L, NULL, NULL"
)
# Spark finds a source whatever the case of its name, and keeps the user's spelling.
SPELLINGS = pytest.mark.parametrize("source", [SOURCE, "FFQShuffle"])


@pytest.fixture
def nulls(spark: Any, root: str) -> str:
    write(spark.sql("SELECT 1L k, 5 v UNION ALL SELECT 2L, NULL"), root, keys="k", partitions=2)
    return root


@pytest.fixture
def nested(spark: Any, root: str) -> str:
    write(spark.sql(LOOSE_ROWS), root, keys="k", partitions=2)
    return root


def load(spark: Any, root: str, schema: str, source: str = SOURCE) -> Any:
    return spark.read.format(source).schema(schema).load(root)


@SPELLINGS
def test_a_schema_cannot_forbid_nulls(spark: Any, nulls: str, source: str) -> None:
    strict = load(spark, nulls, STRICT, source)
    assert tuple(strict.selectExpr("COUNT(v)", "COUNT(*)").first()) == (1, 2)
    assert [row.k for row in strict.where("v IS NULL").collect()] == [2]
    assert {row.k: row.v for row in strict.collect()} == {1: 5, 2: None}
    assert strict.schema == read(spark, nulls).schema


@SPELLINGS
def test_a_schema_cannot_forbid_nulls_inside(spark: Any, nested: str, source: str) -> None:
    strict = load(spark, nested, NESTED, source)
    assert strict.schema.json() == loose_schema(strict)
    assert [row.k for row in strict.where("s.a IS NULL").orderBy("k").collect()] == [2, 3]
    assert [row.k for row in strict.where("m['x'].c IS NULL").orderBy("k").collect()] == [2, 3]
    row_by_key = {row.k: row.asDict(True) for row in strict.collect()}
    assert row_by_key == {row.k: row.asDict(True) for row in read(spark, nested).collect()}
    assert row_by_key[2] == {"k": 2, "s": {"a": None, "l": [{"b": None}]}, "m": {"x": {"c": None}}}


@SPELLINGS
def test_a_stream_s_schema_cannot_forbid_nulls(
    spark: Any, nested: str, tmp_path: Path, source: str
) -> None:
    stream = spark.readStream.format(source).schema(NESTED).load(nested)
    assert stream.schema.json() == loose_schema(stream)
    counted = stream.selectExpr("k", "s.a IS NULL AS a", "m IS NULL AS m", "m['x'].c IS NULL AS c")
    target = str(tmp_path / "copied")
    query = (
        counted.writeStream.format(SOURCE)
        .options(keys="k", partitions=2, checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(target)
    )
    query.awaitTermination()
    copied = sorted(tuple(row) for row in read(spark, target).collect())
    assert copied == [(1, False, False, False), (2, True, False, True), (3, True, True, True)]


def test_without_the_plugin_a_null_that_a_schema_forbids_is_an_error(
    spark: Any, nulls: str, tmp_path: Path
) -> None:
    """Spark trusts NOT NULL in a user's schema, so any result would be wrong."""
    bare = bare_source(spark)
    for query in (
        load(spark, nulls, STRICT, bare),
        load(spark, nulls, STRICT, bare).selectExpr("COUNT(v)"),
    ):
        message = failure(query.collect)
        assert "FFQ_EXCHANGE_MISMATCH" in message
        assert "'v'" in message and "NOT NULL" in message
    assert len(load(spark, nulls, "k BIGINT NOT NULL, v INT", bare).collect()) == 2
    root = str(tmp_path / "nested")
    write(spark.sql(LOOSE_ROWS).where("k < 3"), root, keys="k", partitions=2)
    assert "'s.a'" in failure(load(spark, root, NESTED, bare).collect)
    root = str(tmp_path / "filled")
    write(spark.sql(LOOSE_ROWS).where("k = 1"), root, keys="k", partitions=2)
    assert len(load(spark, root, NESTED, bare).collect()) == 1
