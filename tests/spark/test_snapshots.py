"""A DataFrame always shows the snapshot that was newest when the DataFrame was made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from spark_rows import SOURCE, bare_source, read, write

pytestmark = pytest.mark.spark

SCHEMA = "k BIGINT, v BIGINT"


@pytest.fixture
def three(spark: Any, root: str) -> str:
    add(spark, root)
    return root


def add(spark: Any, root: str) -> None:
    """Append a step of three rows."""
    write(spark.range(3).selectExpr("id AS k", "id AS v"), root, keys="k", partitions=2)


def test_a_frame_with_a_schema_keeps_the_snapshot_of_its_load(spark: Any, three: str) -> None:
    frame = spark.read.format(SOURCE).schema(SCHEMA).load(three)
    add(spark, three)
    assert len(frame.collect()) == frame.count() == 3
    assert spark.read.format(SOURCE).schema(SCHEMA).load(three).count() == 6


def test_without_the_plugin_a_frame_keeps_one_snapshot(spark: Any, three: str) -> None:
    """A frame keeps the snapshot of its load, or of its first scan if the user passes a schema."""
    bare = bare_source(spark)
    frame = spark.read.format(bare).load(three)
    given = spark.read.format(bare).schema(SCHEMA).load(three)
    add(spark, three)
    assert (frame.count(), given.count()) == (3, 6)
    add(spark, three)
    assert (frame.count(), given.count()) == (3, 6)


def test_views_show_the_snapshot_of_their_frame(spark: Any, three: str) -> None:
    """A view keeps its snapshot over queries and refreshes, until it is created again."""
    read(spark, three).createOrReplaceTempView("kept")
    read(spark, three, asOfStep=1).createOrReplaceTempView("first")

    def rows_of(view: str) -> int:
        return int(spark.sql(f"SELECT COUNT(*) FROM {view}").first()[0])

    add(spark, three)
    assert rows_of("kept") == 3
    spark.sql("REFRESH TABLE kept")
    spark.catalog.refreshTable("kept")
    assert rows_of("kept") == len(spark.table("kept").collect()) == 3
    read(spark, three).createOrReplaceTempView("kept")
    assert (rows_of("kept"), rows_of("first")) == (6, 3)


@pytest.mark.parametrize("refresh", [
    lambda spark, root: spark.sql(f"REFRESH '{root}'"),
    lambda spark, root: spark.catalog.refreshByPath(root),
    lambda spark, root: spark.sql("CLEAR CACHE"),
], ids=["REFRESH path", "refreshByPath", "CLEAR CACHE"])  # fmt: skip
def test_a_cached_frame_shows_its_snapshot(
    spark: Any, three: str, refresh: Callable[[Any, str], Any]
) -> None:
    """The frame keeps its snapshot while the cache is filled, refreshed and dropped."""
    frame = read(spark, three)
    late = read(spark, three).cache()
    frame.cache()
    assert frame.count() == 3
    add(spark, three)
    assert len(frame.collect()) == 3
    assert len(late.collect()) == 3
    newer = read(spark, three)
    assert newer.count() == 6
    refresh(spark, three)
    assert len(frame.collect()) == len(late.collect()) == 3
    assert len(newer.collect()) == 6
    frame.unpersist()
    late.unpersist()
    assert (frame.count(), late.count(), newer.count()) == (3, 3, 6)


def test_a_cached_frame_is_not_given_to_readers_of_another_snapshot(spark: Any, three: str) -> None:
    old = read(spark, three).cache()
    assert old.count() == 3
    add(spark, three)
    assert read(spark, three).cache().count() == 6
    assert old.count() == 3
    spark.sql("CLEAR CACHE")
