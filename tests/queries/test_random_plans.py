"""Random plans of joins, aggregates, windows and unions, compared with the same over Parquet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import Window
from pyspark.sql import functions as f
from query_plans import conf
from spark_rows import read, rows, write

pytestmark = pytest.mark.spark

# The write options of each table; all tables have the columns k, g and v, and one has narrow keys.
TABLES: dict[str, dict[str, Any]] = {
    "a": {"keys": "k", "partitions": 8},
    "b": {"keys": "k", "partitions": 8, "sortBy": "k"},
    "c": {"keys": "k", "partitions": 4, "sortBy": "k,v"},
    "d": {"keys": "k", "partitions": 6},
    "e": {"keys": "k,g", "partitions": 8, "sortBy": "k,g"},
    "f": {"keys": "g,k", "partitions": 8},
    "h": {"keys": "g", "partitions": 3},
    "i": {"keys": "k", "partitions": 1},
    "j": {"keys": "k", "partitions": 12, "sortBy": "k"},
    "l": {"keys": "k", "partitions": 8},
}
NARROW = "l"
COLUMNS = ["k", "g", "v"]
Plan = Callable[[dict[str, Any]], Any]


@pytest.fixture(scope="module")
def tables(
    spark: Any, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Write each table as an exchange of two steps and as Parquet; `a` also has a replaced step."""
    folder = tmp_path_factory.mktemp("random")
    exchanges, parquet = {}, {}
    for number, (name, options) in enumerate(TABLES.items()):
        frame = spark.range(0, 90, 1, 2).selectExpr(
            f"IF((id + {number}) % 9 = 0, NULL, (id * {number + 3}) % 23) AS k",
            f"IF(id % 10 = {number}, NULL, CAST((id * 7 + {number}) % 4 AS STRING)) AS g",
            f"(id * 31 + {number}) % 50 AS v",
        )
        if name == NARROW:
            frame = frame.withColumn("k", f.col("k").cast("int"))
        root = str(folder / f"{name}.exchange")
        order = {"sortBy": options["sortBy"]} if "sortBy" in options else {}
        if name == "a":
            write(frame.limit(3), root, **options)
        write(frame.where("v < 30"), root, mode="overwrite", **options)
        write(frame.where("v >= 30"), root, **order)
        frame.coalesce(1).write.parquet(str(folder / f"{name}.parquet"))
        exchanges[name] = read(spark, root)
        parquet[name] = spark.read.parquet(str(folder / f"{name}.parquet"))
    return exchanges, parquet


def scan(name: str) -> Plan:
    return lambda t: t[name].select(*COLUMNS)


def filtered(child: Plan, condition: str) -> Plan:
    return lambda t: child(t).where(condition)


def joined(left: Plan, right: Plan, how: str, on: tuple[str, ...]) -> Plan:
    def run(t: dict[str, Any]) -> Any:
        other = right(t).select(*on, f.col("v").alias("w"))
        rows = left(t).join(other, list(on), how)
        if how in ("left_semi", "left_anti"):
            return rows.select(*COLUMNS)
        return rows.selectExpr("k", "g", "COALESCE(v, 1) * 3 + COALESCE(w, 7) AS v")

    return run


def grouped(child: Plan, by: tuple[str, ...]) -> Plan:
    def run(t: dict[str, Any]) -> Any:
        others = [f.max(name).alias(name) for name in ("k", "g") if name not in by]
        rows = child(t).groupBy(*by).agg(f.sum("v").alias("v"), *others)
        return rows.select(*COLUMNS)

    return run


def ranked(child: Plan, by: tuple[str, ...]) -> Plan:
    def run(t: dict[str, Any]) -> Any:
        window = Window.partitionBy(*by).orderBy("v", "k", "g")
        number = f.row_number().over(window)
        return child(t).select("k", "g", (f.col("v") + number).alias("v"))

    return run


def united(left: Plan, right: Plan) -> Plan:
    return lambda t: left(t).unionAll(right(t))


def distinct(child: Plan) -> Plan:
    return lambda t: child(t).distinct()


def repartitioned(child: Plan, count: int, by: tuple[str, ...]) -> Plan:
    return lambda t: child(t).repartition(count, *by)


def renamed(child: Plan) -> Plan:
    """Change the order of the columns, the type of the key and the values of v."""
    return lambda t: child(t).selectExpr("v + 1 AS v", "CAST(k AS INT) AS k", "g")


hows = st.sampled_from(["inner", "left", "right", "full", "left_semi", "left_anti"])
clusters = st.sampled_from([("k",), ("k", "g"), ("g", "k"), ("g",)])
joins = st.sampled_from([("k",), ("k", "g"), ("g", "k")])
conditions = st.sampled_from(["v > 20", "k = 5", "k IN (1, 2, 3)", "g = '1'", "k IS NULL", "v < 0"])


def larger(plans: st.SearchStrategy[Plan]) -> st.SearchStrategy[Plan]:
    return st.one_of(
        st.builds(joined, plans, plans, hows, joins),
        st.builds(joined, plans, plans, hows, joins),
        st.builds(grouped, plans, clusters),
        st.builds(ranked, plans, clusters),
        st.builds(united, plans, plans),
        st.builds(distinct, plans),
        st.builds(filtered, plans, conditions),
        st.builds(repartitioned, plans, st.sampled_from([4, 8]), clusters),
        st.builds(renamed, plans),
    )


plans = st.recursive(st.builds(scan, st.sampled_from(sorted(TABLES))), larger, max_leaves=5)


def check(
    spark: Any,
    tables: tuple[dict[str, Any], dict[str, Any]],
    plan: Plan,
    aqe: bool,
    wide: bool,
    split: bool,
) -> None:
    settings = {
        "spark_sql_adaptive_enabled": str(aqe).lower(),
        "spark_sql_autoBroadcastJoinThreshold": "-1" if wide else "10MB",
        "spark_sql_shuffle_partitions": "3",
        # Whether adaptive execution splits partitions as skewed, or coalesces all of them.
        "spark_sql_adaptive_advisoryPartitionSizeInBytes": "200" if split else "64MB",
        "spark_sql_adaptive_skewJoin_skewedPartitionThresholdInBytes": "100" if split else "256MB",
        "spark_sql_adaptive_skewJoin_skewedPartitionFactor": "1" if split else "5",
    }
    with conf(spark, **settings):
        over_exchanges, over_parquet = (rows(of.limit(20000)) for of in map(plan, tables))
    assert len(over_exchanges) == len(over_parquet)
    if len(over_parquet) < 20000:
        assert over_exchanges == over_parquet


_fixtures = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=25, suppress_health_check=_fixtures)
@given(plan=plans, aqe=st.booleans(), wide=st.booleans(), split=st.booleans())
def test_random_plans(
    spark: Any, tables: Any, plan: Plan, aqe: bool, wide: bool, split: bool
) -> None:
    check(spark, tables, plan, aqe, wide, split)


@pytest.mark.soak
@settings(max_examples=300, suppress_health_check=_fixtures)
@given(plan=plans, aqe=st.booleans(), wide=st.booleans(), split=st.booleans())
def test_many_random_plans(
    spark: Any, tables: Any, plan: Plan, aqe: bool, wide: bool, split: bool
) -> None:
    check(spark, tables, plan, aqe, wide, split)
