"""Exchanges need no more shuffles and sorts than Spark's bucketed tables, even after appends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import Window
from pyspark.sql import functions as f
from query_plans import Answer, conf
from spark_rows import read, write

pytestmark = pytest.mark.spark

Query = Callable[[Any, Any], Any]
APPENDS = 3


@pytest.fixture(scope="module")
def tables(
    spark: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, tuple[Any, Any]]]:
    """Write pairs of tables, as Spark's bucketed and sorted tables and as exchanges.

    Tables `once` are written once by one task, so that a bucket is one file. Tables `often` are
    written by several appends.
    """
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    folder = tmp_path_factory.mktemp("parity")
    frame = spark.range(0, 600, 1, 1).selectExpr("id % 70 AS k", "id AS v", "id % 3 AS g")
    pairs = {}
    for times, name in ((1, "once"), (APPENDS, "often")):
        buckets, exchanges = [], []
        for side in ("left", "right"):
            table, path = f"{name}_{side}", str(folder / f"{name}-{side}")
            for turn in range(times):
                step = frame.where(f"v % {times} = {turn}")
                bucketed = step.write.bucketBy(8, "k").sortBy("k").format("parquet").mode("append")
                bucketed.option("path", f"{path}.buckets").saveAsTable(table)
                write(step, path, keys="k", partitions=8, sortBy="k")
            buckets.append(spark.table(table))
            exchanges.append(read(spark, path))
        pairs[f"{name} bucketed"] = (buckets[0], buckets[1])
        pairs[f"{name} exchange"] = (exchanges[0], exchanges[1])
    yield pairs
    for name in ("once", "often"):
        for side in ("left", "right"):
            spark.sql(f"DROP TABLE {name}_{side}")


def ranked(left: Any, right: Any) -> Any:
    number = f.row_number().over(Window.partitionBy("k").orderBy("v"))
    return left.select("k", "v", number.alias("n"))


QUERIES: dict[str, Query] = {
    "group": lambda left, right: left.groupBy("k").agg(f.sum("v")),
    "group by more": lambda left, right: left.groupBy("k", "g").agg(f.sum("v")),
    "distinct": lambda left, right: left.select("k").distinct(),
    "window": ranked,
    "inner join": lambda left, right: left.join(right.selectExpr("k", "v AS w"), "k"),
    "full join": lambda left, right: left.join(right.selectExpr("k", "v AS w"), "k", "full"),
    "semi join": lambda left, right: left.join(right.where("v > 9"), "k", "left_semi"),
    "join, then group": lambda left, right: left.join(right.select("k"), "k").groupBy("k").count(),
    "other table": lambda left, right: left.join(left.sparkSession.range(50).toDF("k"), "k"),
    "union, then group": lambda left, right: left.unionAll(right).groupBy("k").count(),
}


@pytest.mark.parametrize("times", ["once", "often"])
@pytest.mark.parametrize("name", QUERIES)
def test_never_more_shuffles_and_sorts(
    name: str, times: str, spark: Any, tables: dict[str, tuple[Any, Any]]
) -> None:
    with conf(spark, spark_sql_legacy_bucketedTableScan_outputOrdering="true"):
        theirs = Answer(QUERIES[name](*tables[f"{times} bucketed"]))
        ours = Answer(QUERIES[name](*tables[f"{times} exchange"]))
    assert ours.rows == theirs.rows
    assert ours.shuffles <= theirs.shuffles, (ours.plan, theirs.plan)
    assert ours.count("Sort") <= theirs.count("Sort"), (ours.plan, theirs.plan)


def test_appends_cost_bucketed_tables_their_order(tables: dict[str, tuple[Any, Any]]) -> None:
    """After appends, bucketed tables sort and exchanges do not: the comparison above can fail."""
    join = QUERIES["inner join"]
    assert Answer(join(*tables["often bucketed"])).count("Sort") == 2
    assert Answer(join(*tables["often exchange"])).count("Sort") == 0
