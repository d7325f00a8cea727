"""The option `mergeBy` in Spark: one task, whose rows come as `ORDER BY` returns them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from query_plans import Answer, conf
from spark_rows import failure, read, rows, write

pytestmark = pytest.mark.spark

COLUMNS = ["k", "v", "s"]


@pytest.fixture(scope="module")
def table(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write three steps, sorted by a double with nulls, NaN and both zeros, and by a string."""
    root = str(tmp_path_factory.mktemp("merged") / "root")
    frame = spark.range(0, 3000, 1, 3).selectExpr(
        "CASE id % 9 WHEN 0 THEN NULL WHEN 1 THEN DOUBLE('NaN') WHEN 2 THEN -0.0D WHEN 3 THEN 0.0D "
        "ELSE CAST((id * 7919) % 200 - 100 AS DOUBLE) END AS k",
        "CAST((id * 31) % 3000 AS STRING) AS v",
        "id % 3 AS s",
    )
    for step in range(3):
        write(frame.where(f"s = {step}"), root, partitions=8, keys="s", sortBy="k,v")
    return root


@pytest.fixture(params=["true", "false"], ids=["plugin plans", "plain source"])
def planner(spark: Any, request: pytest.FixtureRequest) -> Iterator[None]:
    with conf(spark, spark_ffq_planner_enabled=request.param):
        yield


def in_order(frame: Any) -> list[str]:
    return [repr(tuple(row)) for row in frame.collect()]


def test_rows_come_as_order_by_returns_them(spark: Any, table: str, planner: None) -> None:
    merged = read(spark, table, mergeBy="k, v")
    ordered = read(spark, table).orderBy("k", "v")
    assert merged.rdd.getNumPartitions() == 1
    # The order of -0.0 and 0.0 is decided by `v`, because they are equal.
    assert in_order(merged.select(*COLUMNS)) == in_order(ordered.select(*COLUMNS))
    assert in_order(merged.select("s", "v")) == in_order(ordered.select("s", "v"))
    some = "s = 1 AND k > 5"
    ordered = read(spark, table).where(some).orderBy("k").select("k")
    assert in_order(read(spark, table, mergeBy="k").where(some).select("k")) == in_order(ordered)


def test_other_options_still_hold(spark: Any, table: str, planner: None) -> None:
    merged = read(spark, table, mergeBy="k,v", asOfStep=2, metadataColumns="true")
    assert merged.count() == 2000
    assert {row._ffq_step for row in merged.collect()} == {1, 2}
    some = read(spark, table, mergeBy="k", partitions="0-3", minTasks=4, targetPartitionBytes=100)
    assert rows(some) == rows(read(spark, table, partitions="0-3"))
    assert some.rdd.getNumPartitions() == 1


def test_queries_of_a_merge_are_right(spark: Any, table: str, planner: None) -> None:
    """A merge is one task, so nothing may be planned as if its rows were partitioned by key."""
    merged, plain = read(spark, table, mergeBy="k"), read(spark, table)
    grouped = Answer(merged.groupBy("s").count())
    assert grouped.rows == rows(plain.groupBy("s").count())
    assert grouped.scans in ([0], [])
    other = plain.selectExpr("s", "v AS w")
    joined = [frame.join(other, "s").groupBy("s").count() for frame in (merged, plain)]
    assert rows(joined[0]) == rows(joined[1])


def test_refusals(spark: Any, table: str, tmp_path: Path) -> None:
    message = failure(lambda: read(spark, table, mergeBy="v").collect())
    assert "FFQ_NOT_SORTED" in message
    assert "step 1 is sorted by k, v, and mergeBy is v" in message
    assert "FFQ_COLUMN_MISSING" in failure(lambda: read(spark, table, mergeBy="x").collect())
    stream = spark.readStream.format("ffqshuffle").option("mergeBy", "k").load(table)
    start = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    message = failure(lambda: start.start().awaitTermination())
    assert "FFQ_BAD_OPTION" in message
    assert "the rows of a stream come in no order" in message
