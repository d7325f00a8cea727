"""An exchange by a narrow integer joined with a wider one: only the other side is shuffled."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import functions as f
from query_plans import Answer, conf
from spark_rows import read, rows, write

pytestmark = pytest.mark.spark

Query = Callable[[dict[str, Any]], Any]
HOWS = ("inner", "left", "right", "full", "left_semi", "left_anti")


@pytest.fixture(scope="module")
def frames(spark: Any) -> dict[str, Any]:
    """Make wide keys of which some do not fit, and of these some have the low bits of others."""
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    narrow = spark.range(0, 200, 1, 2).selectExpr(
        "IF(id % 13 = 0, NULL, id % 60 - 20) AS k", "CAST(id % 3 AS STRING) AS g", "id AS v"
    )
    low = "IF(id % 17 = 0, NULL, id % 75 - 30)"
    wide = spark.range(0, 160, 1, 2).selectExpr(
        f"CASE id % 4 WHEN 0 THEN {low} + 4294967296 WHEN 1 THEN {low} + 65536 "
        f"WHEN 2 THEN (id - 80) * 100000000000000000 ELSE {low} END AS k",
        "CAST(id % 3 AS STRING) AS g",
        "id AS w",
    )
    kinds = {"byte": "TINYINT", "short": "SMALLINT", "int": "INT", "long": "BIGINT"}
    cast = {name: narrow.withColumn("k", f.expr(f"CAST(k AS {kinds[name]})")) for name in kinds}
    return {**cast, "pair": cast["int"], "wide": wide}


@pytest.fixture(scope="module")
def tables(
    frames: dict[str, Any], spark: Any, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    roots = {n: str(tmp_path_factory.mktemp(n) / "root") for n in frames if n != "wide"}
    for name, root in roots.items():
        write(frames[name], root, keys="k,g" if name == "pair" else "k", partitions=8)
    return {**{n: read(spark, root) for n, root in roots.items()}, "wide": frames["wide"]}


@pytest.fixture(params=["true", "false"], ids=["aqe", "no aqe"])
def aqe(spark: Any, request: pytest.FixtureRequest) -> Iterator[None]:
    with conf(spark, spark_sql_adaptive_enabled=request.param):
        yield


def joined(left: str, right: str, how: str, condition: str = "x.k = y.k") -> Query:
    def run(t: dict[str, Any]) -> Any:
        value = {"wide": "w"}
        rest = [f"y.{value.get(right, 'v')} AS z", "y.k AS l"]
        columns = ["x.k", "x.g", f"x.{value.get(left, 'v')} AS u"]
        both = t[left].alias("x").join(t[right].alias("y"), f.expr(condition), how)
        return both.selectExpr(*columns, *([] if "left_" in how else rest))

    return run


def wide_again(t: dict[str, Any]) -> Any:
    other = t["wide"].selectExpr("k AS l", "w + 1 AS z2")
    return joined("int", "wide", "inner")(t).join(other, "l", "left")


def three(other: str) -> Query:
    def run(t: dict[str, Any]) -> Any:
        first = t["int"].selectExpr("k AS a", "v AS b")
        second = t[other].selectExpr("k AS c", "v AS d")
        return t["wide"].join(first, f.expr("k = a")).join(second, f.expr("k = c"), "left")

    return run


# For each query, the number of shuffles and the partitions of each scan.
QUERIES: dict[str, tuple[Query, int, list[int]]] = {
    **{how: (joined("int", "wide", how), 1, [8]) for how in HOWS},
    **{f"wide on the left, {how}": (joined("wide", "int", how), 1, [8]) for how in HOWS[1:4]},
    "short": (joined("short", "wide", "full"), 1, [8]),
    "byte": (joined("byte", "wide", "full"), 1, [8]),
    "and more columns": (joined("int", "wide", "full", "x.g = y.g AND x.k = y.k"), 1, [8]),
    "two keys": (joined("pair", "wide", "left", "x.g = y.g AND x.k = y.k"), 1, [8]),
    "two exchanges": (joined("int", "long", "full"), 1, [8, 0]),
    "two exchanges, wide on the left": (joined("long", "short", "full"), 1, [8, 0]),
    "grouped": (lambda t: joined("int", "wide", "right")(t).groupBy("l").count(), 1, [8]),
    "joined again": (wide_again, 2, [8]),
    "a wide table between exchanges of one type": (three("int"), 1, [8, 8]),
    "a wide table between exchanges of two types": (three("short"), 2, [8, 0]),
    # Equal narrowed keys may lie in different partitions.
    "narrowed by the query": (
        lambda t: (
            t["long"].where("v > 9").selectExpr("CAST(k AS SMALLINT) AS k").groupBy("k").count()
        ),
        1,
        [0],
    ),
    "narrowed by a join": (
        joined("long", "short", "left", "CAST(x.k AS SMALLINT) = y.k AND x.v > 3"),
        1,
        [0, 8],
    ),
    "decimals": (joined("int", "wide", "inner", "CAST(x.k AS DECIMAL(20, 0)) = y.k"), 2, [0]),
    "null equals null": (joined("int", "wide", "full", "x.k <=> y.k"), 2, [0]),
}


@pytest.fixture(scope="module")
def expected(frames: dict[str, Any]) -> Callable[[str], list[str]]:
    """Return a function that caches a query's rows over plain tables."""
    return functools.cache(lambda name: rows(QUERIES[name][0](frames)))


@pytest.mark.parametrize("name", QUERIES)
def test_joins(
    name: str, tables: dict[str, Any], expected: Callable[[str], list[str]], aqe: None
) -> None:
    query, shuffles, scans = QUERIES[name]
    answer = Answer(query(tables))
    assert answer.rows == expected(name)
    assert (answer.shuffles, answer.scans) == (shuffles, scans), answer.plan


def test_adaptive_execution_may_change_the_join(
    spark: Any, tables: dict[str, Any], frames: dict[str, Any]
) -> None:
    """Spark plans the joins again above the shuffles that have run, which must suffice again."""
    with conf(spark, spark_sql_adaptive_maxShuffledHashJoinLocalMapThreshold="100MB"):
        answer = Answer(joined("int", "wide", "left")(tables))
        assert answer.count("ShuffledHashJoin") == 1, answer.plan
        assert answer.shuffles == 1
        assert answer.rows == rows(joined("int", "wide", "left")(frames))


def test_the_rule_of_spark_for_more_columns(
    spark: Any, tables: dict[str, Any], frames: dict[str, Any], aqe: None
) -> None:
    query = joined("int", "wide", "inner", "x.g = y.g AND x.k = y.k")
    with conf(spark, spark_sql_requireAllClusterKeysForCoPartition="true"):
        answer = Answer(query(tables))
        assert answer.rows == rows(query(frames))
        assert answer.shuffles == 2
