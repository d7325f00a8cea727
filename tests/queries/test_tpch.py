"""All 22 queries of TPC-H return the same over exchanges as in DuckDB."""

from __future__ import annotations

import datetime
import math
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
from query_plans import conf, executed_nodes
from spark_rows import read, write
from tpch import KEYS, QUERIES, query

pytestmark = pytest.mark.spark


@dataclass(frozen=True)
class Data:
    """Generated tables as exchanges, and DuckDB's answers to the queries."""

    scale: float
    answers: dict[int, list[tuple[Any, ...]]]
    exchanges: dict[str, Any]


def generated(spark: Any, folder: Path, scale: float, partitions: int) -> Data:
    command = str(Path(sys.executable).with_name("tpchgen-cli"))
    target = ["--output-dir", str(folder)]
    subprocess.run([command, "parquet", "-s", str(scale), *target], check=True, capture_output=True)
    database = duckdb.connect()
    database.execute("SET threads = 1")
    exchanges = {}
    for table, key in KEYS.items():
        path = str(folder / f"{table}.parquet")
        database.execute(f"CREATE VIEW {table} AS SELECT * FROM '{path}'")
        root = str(folder / f"{table}.exchange")
        count = partitions if table not in ("nation", "region") else 1
        write(spark.read.parquet(path), root, keys=key, partitions=count, sortBy=key)
        exchanges[table] = read(spark, root)
    answers = {number: database.execute(query(number, scale)).fetchall() for number in QUERIES}
    database.close()
    return Data(scale, answers, exchanges)


@pytest.fixture(scope="module")
def small(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Data:
    return generated(spark, tmp_path_factory.mktemp("tpch"), 0.01, 8)


@pytest.fixture(scope="module")
def large(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Data:
    return generated(spark, tmp_path_factory.mktemp("tpch"), 0.1, 8)


def same(ours: Any, theirs: Any) -> bool:
    """Compare values exactly, except averages and divisions, which are floats only in DuckDB."""
    if isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-6)
    if isinstance(ours, datetime.datetime):
        ours = ours.date()
    if isinstance(theirs, datetime.datetime):
        theirs = theirs.date()
    return bool(ours == theirs)


def assert_same(actual: list[Any], expected: list[Any], name: str) -> None:
    assert len(actual) == len(expected), name
    for ours, theirs in zip(actual, expected, strict=True):
        assert all(map(same, ours, theirs)), (name, ours, theirs)


def run(spark: Any, data: Data, number: int, planner: str, aqe: str) -> int:
    """Compare one query's rows and their order with DuckDB's; return the number of shuffles."""
    settings = {
        "spark_ffq_planner_enabled": planner,
        "spark_sql_adaptive_enabled": aqe,
        # By default most tables of this size would be broadcast, without any shuffle.
        "spark_sql_autoBroadcastJoinThreshold": "64KB",
    }
    for table, exchange in data.exchanges.items():
        exchange.createOrReplaceTempView(table)
    with conf(spark, **settings):
        frame = spark.sql(query(number, data.scale))
        rows = [tuple(row) for row in frame.collect()]
    assert rows or not data.answers[number]
    name = f"query {number}, extension {planner}, adaptive {aqe}"
    assert_same(rows, data.answers[number], name)
    return sum(node == "Exchange" for node, _ in executed_nodes(frame))


def test_answers_are_not_empty(small: Data) -> None:
    """At least 18 queries return rows at the small scale, so the comparison is meaningful."""
    assert sum(bool(rows) for rows in small.answers.values()) >= 18


@pytest.mark.parametrize("number", QUERIES)
def test_answers_at_a_small_scale(spark: Any, small: Data, number: int) -> None:
    run(spark, small, number, "true", "true")


@pytest.mark.soak
@pytest.mark.parametrize("number", QUERIES)
def test_answers_at_scale_a_tenth(
    spark: Any, large: Data, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rows are the same with extension and AQE on or off; the extension adds no shuffle."""
    shuffles = {
        (planner, aqe): run(spark, large, number, planner, aqe)
        for planner in ("true", "false")
        for aqe in ("true", "false")
    }
    with capsys.disabled():
        on, off = (f"{shuffles[p, 'true']}/{shuffles[p, 'false']}" for p in ("true", "false"))
        print(f"\nquery {number:2}: Exchange nodes with the extension {on}, without {off} (AQE/no)")
    assert shuffles["true", "false"] <= shuffles["false", "false"]
