"""An exchange written with `sortBy` is read in this order if a plan can use it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Window
from pyspark.sql import functions as f
from query_plans import Answer, conf, scan_metrics
from spark_rows import read, rows, write

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def frame(spark: Any) -> Any:
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    return spark.range(0, 3000, 1, 3).selectExpr(
        "IF(id % 11 = 0, NULL, (id * 7919) % 200) AS k", "(id * 31) % 3000 AS v", "id % 3 AS s"
    )


@pytest.fixture(scope="module")
def tables(spark: Any, frame: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Write `a` in three steps, `b` with half the partitions, and `c` with one unsorted step."""
    roots = {name: str(tmp_path_factory.mktemp(name) / "root") for name in "abc"}
    for step in range(3):
        part = frame.where(f"s = {step}")
        write(part, roots["a"], keys="k", partitions=8, sortBy="k,v")
        write(part, roots["c"], keys="k", partitions=8, **({"sortBy": "k"} if step else {}))
    write(frame, roots["b"], keys="k", partitions=4, sortBy="k")
    return {name: read(spark, root) for name, root in roots.items()}


@pytest.fixture(params=["true", "false"], ids=["aqe", "no aqe"])
def aqe(spark: Any, request: pytest.FixtureRequest) -> Iterator[None]:
    with conf(spark, spark_sql_adaptive_enabled=request.param):
        yield


def ranked(t: Any) -> Any:
    window = Window.partitionBy("k").orderBy("v")
    return t.select("k", "v", f.row_number().over(window).alias("n"))


def latest(t: Any) -> Any:
    return t.groupBy("k").agg(f.max("v"), f.collect_list("v").alias("l")).select("k", "max(v)")


def joined(left: Any, right: Any, how: str = "inner") -> Any:
    return left.join(right.selectExpr("k", "v AS w"), "k", how)


@pytest.mark.parametrize("how", ["inner", "full", "left_anti"])
def test_joins_without_a_sort(tables: dict[str, Any], frame: Any, how: str, aqe: None) -> None:
    answer = Answer(joined(tables["a"], tables["a"].where("v < 1500"), how))
    assert answer.rows == rows(joined(frame, frame.where("v < 1500"), how))
    assert (answer.shuffles, answer.count("Sort"), answer.scans) == (0, 0, [8, 8]), answer.plan


def test_a_coarser_and_a_finer_side(tables: dict[str, Any], frame: Any, aqe: None) -> None:
    """The scan merges partitions i and i + 4 of the finer side."""
    answer = Answer(joined(tables["a"], tables["b"]).groupBy("k").count())
    assert answer.rows == rows(joined(frame, frame).groupBy("k").count())
    assert (answer.shuffles, answer.count("Sort"), answer.scans) == (0, 0, [4, 4]), answer.plan


def test_windows_and_aggregates_without_a_sort(
    tables: dict[str, Any], frame: Any, aqe: None
) -> None:
    answer = Answer(ranked(tables["a"]))
    assert answer.rows == rows(ranked(frame))
    assert (answer.shuffles, answer.count("Sort")) == (0, 0), answer.plan
    answer = Answer(latest(tables["a"]))
    assert answer.rows == rows(latest(frame))
    assert (answer.shuffles, answer.count("Sort")) == (0, 0), answer.plan


def test_only_the_side_that_is_not_sorted_is_sorted(
    tables: dict[str, Any], frame: Any, aqe: None
) -> None:
    """A scan sorts its own unsorted side; Spark sorts rows that it has shuffled."""
    answer = Answer(joined(tables["a"], tables["c"]))
    assert answer.rows == rows(joined(frame, frame))
    assert (answer.shuffles, answer.count("Sort"), answer.sorting) == (0, 0, 1), answer.plan
    answer = Answer(joined(frame, tables["a"]))
    assert answer.rows == rows(joined(frame, frame))
    assert (answer.shuffles, answer.count("Sort"), answer.sorting) == (1, 1, 0), answer.plan


def test_scans_sort_by_other_names_and_several_columns(
    tables: dict[str, Any], frame: Any, aqe: None
) -> None:
    def renamed(t: Any) -> Any:
        return t.selectExpr("s", "k AS j", "v").join(t.selectExpr("k AS j", "v + 1 AS w"), "j")

    for make in (renamed, ranked):
        answer = Answer(make(tables["c"]))
        assert answer.rows == rows(make(frame))
        counts = (answer.shuffles, answer.count("Sort"), answer.sorting)
        assert counts == (0, 0, 2 if make is renamed else 1), answer.plan


def test_spark_sorts_what_a_filter_leaves(tables: dict[str, Any], frame: Any) -> None:
    def few(t: Any) -> Any:
        return joined(t.where("v < 100"), t)

    answer = Answer(few(tables["c"]))
    assert answer.rows == rows(few(frame))
    assert (answer.shuffles, answer.count("Sort"), answer.sorting) == (0, 1, 1), answer.plan


def test_spark_sorts_in_orders_that_scans_do_not_know(tables: dict[str, Any], frame: Any) -> None:
    def newest(t: Any) -> Any:
        window = Window.partitionBy("k").orderBy(f.desc("v"))
        return t.select("k", "v", f.row_number().over(window).alias("n"))

    answer = Answer(newest(tables["c"]))
    assert answer.rows == rows(newest(frame))
    assert (answer.shuffles, answer.count("Sort"), answer.sorting) == (0, 1, 0), answer.plan


def test_rows_come_in_the_order_that_is_promised(tables: dict[str, Any], aqe: None) -> None:
    """The plan omits the requested sort, and the rows still have the requested order."""
    arranged = tables["a"].repartition(8, "k").sortWithinPartitions("k", "v").select("k", "v")
    assert "FfqScan" in arranged._jdf.queryExecution().executedPlan().toString()
    for partition in arranged.rdd.glom().collect():
        keys = [(row.k is not None, row.k, row.v) for row in partition]
        assert keys == sorted(keys, key=lambda key: (key[0], key[1] or 0, key[2]))


def test_order_is_not_kept_where_nothing_needs_it(tables: dict[str, Any]) -> None:
    answer = Answer(tables["a"].where("v > 10").select("v"))
    assert answer.scans == [0] and not any("ordered" in rest for _, rest in answer.plan)


def test_replaced_and_older_snapshots(spark: Any, frame: Any, root: str) -> None:
    """The order depends only on the steps of the snapshot, not on earlier or later steps."""
    write(frame, root, keys="k", partitions=4)
    write(frame, root, mode="overwrite", sortBy="k")
    sorted_now, before = read(spark, root), read(spark, root, asOfStep=1)
    write(frame.limit(10), root)
    for table, sorting in ((sorted_now, 0), (before, 1), (read(spark, root), 1)):
        answer = Answer(joined(table, sorted_now).groupBy("k").count())
        assert (answer.count("Sort"), answer.sorting) == (0, sorting), answer.plan
    assert Answer(sorted_now.groupBy("k").count()).rows == rows(frame.groupBy("k").count())


def python_workers(spark: Any) -> set[int]:
    """Return the pids of the Python workers of a session."""
    java = spark._jvm.java.lang.ProcessHandle.current().pid()
    return {worker for daemon in children(java) for worker in children(daemon)}


def children(process: int) -> set[int]:
    files = Path(f"/proc/{process}/task").glob("*/children")
    return {int(child) for file in files for child in file.read_text().split()}


def test_tasks_that_end_early_keep_their_python_workers(spark: Any, tables: dict[str, Any]) -> None:
    """When a merge join ends early, the plugin reads the rest of the other side from its worker.

    It does so only for a short time, which may be too short on a busy machine. One run in which
    all workers survive is enough.
    """
    query = joined(tables["a"].where("v < 100"), tables["a"]).groupBy("k").count()
    query.collect()
    seen = [python_workers(spark)]
    for _ in range(8):
        query.collect()
        seen.append(python_workers(spark))
    assert seen[0]
    assert any(after <= before for before, after in pairwise(seen)), seen


def test_columns_may_be_spelled_in_another_case(spark: Any, tmp_path: Path) -> None:
    """Names in another case work in scans that sort and in joins that prune."""
    root = str(tmp_path / "root")
    frame = spark.range(0, 300, 1, 2).selectExpr("id % 50 AS key", "id AS value")
    write(frame, root, keys="key", partitions=8)
    exchange, few = read(spark, root), frame.selectExpr("key", "value AS w").where("w = 7")
    with conf(spark, spark_sql_autoBroadcastJoinThreshold="-1"):
        left, right = exchange.select("KEY", "Value"), exchange.selectExpr("Key", "VALUE AS w")
        answer = Answer(left.join(right, "kEY"))
        assert answer.rows == rows(frame.join(frame.withColumnRenamed("value", "w"), "key"))
        assert answer.sorting == 2
    with conf(spark, spark_sql_autoBroadcastJoinThreshold="10MB"):
        query = exchange.select("KEY", "Value").join(few, "Key")
        assert len(query.collect()) == 6
        assert scan_metrics(query)[0]["ffq_partitions_read"] == 1
