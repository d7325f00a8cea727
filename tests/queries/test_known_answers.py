"""Counts, bounds and sizes come from manifests without reading parts, and joins prune scans."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.functions import expr
from query_plans import Answer, conf, scan_metrics, shown_metrics
from spark_rows import failure, files, read, rows, write

from ffq_spark import Exchange

pytestmark = pytest.mark.spark

COLUMNS = [
    "IF(id % 13 = 0, NULL, id % 90) AS k",
    "id AS v",
    "CAST(id AS SMALLINT) AS h",
    "CAST(id / 7 + 1 AS DOUBLE) AS d",
    "IF(id = 5, DOUBLE('NaN'), 1.5D) AS nan",
    "IF(id = 5, 0.0D, -0.0D) AS zero",
    "CAST(id AS DECIMAL(9, 2)) AS m",
    "CONCAT('é', id) AS s",
    "DATE_ADD(DATE'9990-01-01', CAST(id * 30 AS INT)) AS day",
    "TIMESTAMP'2020-01-01 00:00:00' + MAKE_DT_INTERVAL(0, id) AS t",
    "CAST(NULL AS INT) AS none",
    "UNHEX(LPAD(HEX(id % 256), 2, '0')) AS b",
    "id % 3 = 0 AS o",
]
NAMES = ["k", "v", "h", "d", "m", "s", "day", "t", "none"]
KNOWN = [
    "COUNT(*)",
    "COUNT(1) AS one",
    "COUNT(k)",
    *(f"{of}({name})" for name in NAMES for of in ("MIN", "MAX")),
]
ASKED_OF_PARTS = ["SUM(v)", "MIN(nan)", "MAX(zero)", "MIN(b)", "COUNT(DISTINCT k)", "MAX(v + 1)"]


@pytest.fixture(scope="module")
def frame(spark: Any) -> Any:
    return spark.range(0, 500, 1, 2).selectExpr(*COLUMNS)


@pytest.fixture(scope="module")
def root(frame: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write two steps with all statistics, after a step that they replace."""
    root = str(tmp_path_factory.mktemp("known") / "root")
    write(frame.limit(5), root, keys="k", partitions=16, statistics="all")
    write(frame.where("v < 100"), root, mode="overwrite", statistics="all")
    write(frame.where("v >= 100"), root, statistics="all")
    return root


@pytest.fixture
def no_parts(root: str) -> Iterator[None]:
    """Hide all parts of the exchange while the test runs."""
    hidden = Path(root, "shuffle").rename(Path(root).parent / "hidden")
    yield
    hidden.rename(Path(root, "shuffle"))


def test_counts_and_bounds_open_no_part(spark: Any, frame: Any, root: str, no_parts: None) -> None:
    exchange = read(spark, root)
    assert exchange.count() == 500
    assert rows(exchange.selectExpr(*KNOWN)) == rows(frame.selectExpr(*KNOWN))
    some = read(spark, root, partitions="0-3").count()
    assert some == frame.where("PMOD(HASH(k), 16) < 4").count()
    assert read(spark, root, asOfStep=2).selectExpr("MAX(v)").first()[0] == 99
    assert "FFQ_CORRUPT_PART" in failure(exchange.selectExpr("SUM(v)").collect)


@pytest.mark.parametrize("function", ASKED_OF_PARTS)
def test_what_is_not_known_is_read(spark: Any, frame: Any, root: str, function: str) -> None:
    answer = Answer(read(spark, root).selectExpr(function, "COUNT(*) AS n"))
    assert answer.rows == rows(frame.selectExpr(function, "COUNT(*) AS n"))
    assert answer.count("FfqScan") == 1


@pytest.mark.parametrize("excluded", [[], ["FoldablePropagation", "NullPropagation"]], ids=len)
def test_a_count_of_a_literal_counts_its_values(
    spark: Any, frame: Any, root: str, tmp_path: Path, excluded: list[str]
) -> None:
    """Spark asks a source for COUNT(*) where a query counts a literal, also a distinct one."""
    literals = ["1", "'a'", "CURRENT_DATE()", "NULL", "CAST(NULL AS INT)"]
    asked = [f"COUNT({of}{what})" for what in literals for of in ("", "DISTINCT ")]
    asked += ["COUNT(DISTINCT 1, 2)", "COUNT(DISTINCT 1) FILTER (WHERE v > 900)"]
    renamed = ["COUNT(DISTINCT x)", "COUNT(y)", "COUNT(*)"]
    write(frame.limit(0), empty := str(tmp_path / "empty"), keys="k", partitions=2)
    rules = [f"org.apache.spark.sql.catalyst.optimizer.{rule}" for rule in excluded]
    with conf(spark, spark_sql_optimizer_excludedRules=",".join(rules)):
        for exchange, same in (
            (read(spark, root), frame),
            (read(spark, empty), frame.limit(0)),
        ):
            for what in (*asked, "COUNT(*)"):
                assert rows(exchange.selectExpr(what)) == rows(same.selectExpr(what)), what
            every = [f"{what} AS c{place}" for place, what in enumerate(asked)]
            assert rows(exchange.selectExpr(*every)) == rows(same.selectExpr(*every))
            found, expected = (
                rows(table.selectExpr("1 AS x", "NULL AS y", "v").selectExpr(*renamed))
                for table in (exchange, same)
            )
            assert found == expected
            found, expected = (
                rows(table.selectExpr("o", "v").groupBy("o").agg(expr("COUNT(DISTINCT 1)")))
                for table in (exchange, same)
            )
            assert found == expected
        counts = Answer(read(spark, root).selectExpr("COUNT(DISTINCT 1)", "COUNT(*)", "MAX(v)"))
    assert (counts.rows, counts.count("FfqScan")) == (["(1, 500, 499)"], 0)


def test_filters_and_groups_are_read(spark: Any, frame: Any, root: str) -> None:
    for table in (exchange := read(spark, root)), frame:
        assert table.where("v > 400").count() == 99
        assert table.where("v > 400").selectExpr("MIN(v)").first()[0] == 401
        assert table.groupBy("o").count().count() == 2
        assert table.limit(7).count() == 7
    with conf(spark, spark_ffq_planner_enabled="false"):
        assert Answer(exchange.selectExpr("COUNT(*)")).count("FfqScan") == 1


def test_bounds_need_statistics_of_all_steps(spark: Any, tmp_path: Path) -> None:
    """One step without statistics is enough for Spark to read the rows."""
    root = str(tmp_path / "root")
    frame = spark.range(100).selectExpr("id AS k", "id AS v")
    write(frame, root, keys="k", partitions=4)
    assert Answer(read(spark, root).selectExpr("MAX(v)")).count("FfqScan") == 0
    write(frame.selectExpr("k", "v + 1000 AS v"), root, statistics="none")
    answer = Answer(read(spark, root).selectExpr("MAX(v)", "COUNT(*)"))
    assert (answer.rows, answer.count("FfqScan")) == (["(1099, 200)"], 1)


def test_bounds_that_are_no_numbers_are_read(spark: Any, tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    write(spark.sql("SELECT 1 AS k, DOUBLE('-Infinity') AS d"), root, keys="k", partitions=2)
    answers = read(spark, root).selectExpr("MIN(d)", "MAX(d)", "COUNT(d)", "MIN(k)").first()
    assert tuple(answers) == (float("-inf"), float("-inf"), 1, 1)


def test_weights_are_summed_before_rows_are_counted(spark: Any, tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    frame = spark.createDataFrame([(1, 1), (1, -1), (2, 1)], "k INT, w INT")
    write(frame, root, keys="k", partitions=2, weightColumn="w")
    assert read(spark, root).count() == 3
    assert read(spark, root, consolidate="true").count() == 1
    assert read(spark, root, consolidate="true").groupBy("k").count().collect() == [(2, 1)]


def test_small_exchanges_are_broadcast(spark: Any, frame: Any, root: str) -> None:
    """The planner knows an exchange's size, which grows with the columns that are read."""
    exchange = read(spark, root)

    def size(table: Any) -> int:
        return int(table._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())

    parts = sum(Path(root, name).stat().st_size for name in files(root, "shuffle"))
    assert 0 < 4 * size(exchange.select("v")) < size(exchange) <= parts
    table = spark.range(100_000_000).selectExpr("id AS v", "id AS x")
    answer = Answer(table.join(exchange.select("v", "s"), "v").where("x < 50"))
    assert len(answer.rows) == 50
    assert (answer.count("BroadcastHashJoin"), answer.shuffles) == (1, 0)


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_a_join_prunes_partitions_while_it_runs(spark: Any, tmp_path: Path, adaptive: str) -> None:
    """The keys come from the filter of the other side, in plain and in partitioned scans."""
    root = str(tmp_path / "root")
    big = spark.range(0, 3000, 1, 2).selectExpr("id % 300 AS k", "id AS v")
    write(big, root, keys="k", partitions=32)
    small = str(tmp_path / "small")
    names = spark.range(300).selectExpr("id AS k", "CONCAT('name ', id % 100) AS name")
    write(names, small, keys="k", partitions=2)
    exchange, dimension = read(spark, root), read(spark, small).where("name = 'name 7'")
    wanted = [
        row.p for row in names.where("name = 'name 7'").selectExpr("PMOD(HASH(k), 32) p").collect()
    ]
    with conf(spark, spark_sql_adaptive_enabled=adaptive):
        joined = exchange.join(dimension, "k")
        for query in joined, joined.groupBy("k").count():
            joined_rows = sorted(tuple(row) for row in query.collect())
            other = big.join(names.where("name = 'name 7'"), "k")
            other = other if query is joined else other.groupBy("k").count()
            assert joined_rows == sorted(tuple(row) for row in other.collect())
            metrics = scan_metrics(query)[0]
            assert metrics["ffq_partitions_read"] == len(set(wanted))
            assert metrics["ffq_partitions_pruned"] == 32 - len(set(wanted))


@pytest.mark.parametrize("key", ["order-id", "a.b", "my `key`"])
def test_a_join_prunes_by_keys_of_any_name(spark: Any, tmp_path: Path, key: str) -> None:
    root, quoted = str(tmp_path / "root"), "`" + key.replace("`", "``") + "`"
    write(spark.range(300).selectExpr(f"id AS {quoted}", "id AS v"), root, keys=key, partitions=16)
    small = spark.range(300).selectExpr(f"id AS {quoted}", "id AS w").where("w = 7")
    query = read(spark, root).join(small, key)
    assert [(row.v, row.w) for row in query.collect()] == [(7, 7)]
    assert scan_metrics(query)[0]["ffq_partitions_read"] == 1


def test_metrics_of_a_scan(spark: Any, frame: Any, root: str) -> None:
    exchange = read(spark, root)
    query = exchange.select("v")
    assert len(query.collect()) == 500
    (metrics,) = scan_metrics(query)
    parts = sum(step.body.parts for step in Exchange(root).steps())
    assert metrics["ffq_partitions_read"] == 16
    assert metrics["ffq_rows"] == metrics["numOutputRows"] == 500
    assert metrics["ffq_replaced"] == 1
    assert 0 < metrics["ffq_parts"] < parts
    assert metrics["ffq_bytes"] > 500 * 8
    exchange.write.format("noop").mode("overwrite").save()
    by_file = Exchange(root).parts().group_by("file").aggregate([("bytes", "sum")])
    shown = shown_metrics(spark)["FFQ most bytes that a task had asked for at one time"]
    assert int(shown) == max(by_file["bytes_sum"].to_pylist())
    query = exchange.where("k = 7").select("v")
    query.collect()
    (metrics,) = scan_metrics(query)
    assert (metrics["ffq_partitions_read"], metrics["ffq_partitions_pruned"]) == (1, 15)
    assert metrics["ffq_parts_pruned"] > 0


def test_the_metrics_shown_are_the_documented_ones_and_hold_task_ids_for_no_count(
    spark: Any, root: str
) -> None:
    """All attempts of these writes are registered, so the metric of stale attempts must be 0."""
    assert {state.state for state in Exchange(root).attempts()} == {"registered"}
    query = read(spark, root).select("v")
    query.collect()
    (metrics,) = scan_metrics(query)
    assert metrics.get("ffq_stale", 0) == 0
    query.write.format("noop").mode("overwrite").save()
    page = Path(__file__).parents[2].joinpath("docs", "queries.md").read_text()
    documented = {" ".join(name.split()) for name in re.findall(r"`(FFQ [^`]+)`", page)}
    assert {name for name in shown_metrics(spark) if name.startswith("FFQ ")} == documented


@pytest.mark.parametrize("options", [{}, {"layout": "packed", "sortBy": "k"}], ids=str)
def test_a_query_of_few_columns_reads_few_bytes(
    spark: Any, tmp_path: Path, options: dict[str, str]
) -> None:
    """A query reads only its columns and those of its filters, in plain and partitioned scans."""
    root, names = str(tmp_path / "wide"), [f"c{number}" for number in range(19)]
    frame = spark.range(0, 40_000, 1, 2).selectExpr(
        "id AS k", *(f"id + {number} AS {name}" for number, name in enumerate(names))
    )
    write(frame, root, keys="k", partitions=4, **options)
    every = read(spark, root).selectExpr("SUM(k + " + " + ".join(names) + ")")
    some = read(spark, root).where("c3 % 2 = 1").selectExpr("SUM(c7)")
    by_key = read(spark, root).groupBy("k").agg({"c7": "max"}).selectExpr("SUM(`max(c7)`)")
    sizes = []
    for query, answer in (
        (every, 20 * 799_980_000 + 171 * 40_000),
        (some, 400_120_000),
        (by_key, 800_260_000),
    ):
        assert query.collect()[0][0] == answer
        sizes.append(sum(metrics["ffq_bytes"] for metrics in scan_metrics(query)))
    assert 0.1 < sizes[1] / sizes[0] < 0.13
    assert 0.1 < sizes[2] / sizes[0] < 0.13


def test_a_name_that_looks_like_an_expression_answers_for_itself_alone(
    spark: Any, tmp_path: Path
) -> None:
    """A column may be named like a nested field, a literal or an expression of another column."""
    texts = ["st.a", "1", "k + 1", "ABS(k)", "CAST(k AS INT)", "COALESCE(k, 1L)"]
    names = [*texts, "abs(k)", "count(1)"]
    wide = spark.range(4).selectExpr(
        "id AS k",
        "NAMED_STRUCT('a', id) AS st",
        *(f"id + {100 * place} AS `{name}`" for place, name in enumerate(names, 1)),
    )
    asked = [
        f"SELECT '{of}({what})' AS asked, CAST({of}({what}) AS BIGINT) AS answer FROM {{}}"
        for of in ("MIN", "MAX", "COUNT")
        for what in (*texts, *(f"`{name}`" for name in names))
    ]
    root = str(tmp_path / "root")
    with conf(spark, spark_sql_caseSensitive="true"):
        write(wide, root, keys="k", partitions=2)
        exchange = read(spark, root)
        wide.createOrReplaceTempView("wide")
        exchange.createOrReplaceTempView("exchange")
        answers, expected = (
            dict(spark.sql(" UNION ALL ".join(asked).replace("{}", view)).collect())
            for view in ("exchange", "wide")
        )
        answer = Answer(exchange.selectExpr("MIN(`st.a`)", "MAX(`k + 1`)", "COUNT(`1`)"))
    assert answers == expected
    assert (answer.rows, answer.count("FfqScan")) == (["(100, 303, 4)"], 0)
