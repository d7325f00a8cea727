"""Compare groupBy and self-join over an exchange with Parquet and Spark's own shuffle.

    python benchmarks/shuffle_free.py [--rows 10000000] [--partitions 64] [--rounds 5]

All tables are written and queried in one session, in turns, after one warm-up round. The figures
are ratios of medians. The last one compares the bytes that a query of 2 of 20 columns reads with
those of all columns, as the tasks report them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import ffq_spark as ffq

TARGETS = {
    "groupBy": 0.6,
    "self-join + groupBy": 0.6,
    "groupBy, sorted": 0.45,
    "self-join + groupBy, sorted": 0.45,
    "bytes of 2 of 20 columns": 0.2,
}


def session(folder: str) -> Any:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "4g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": folder,
        "spark.sql.autoBroadcastJoinThreshold": "-1",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = ffq.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def write(frame: Any, root: str, partitions: int, **options: str) -> None:
    writer = frame.write.format("ffqshuffle").option("keys", "k").option("partitions", partitions)
    writer.options(**options).mode("append").save(root)


def grouped(table: Any) -> Any:
    return table.groupBy("k").agg({"a": "sum", "b": "max"})


def joined(table: Any) -> Any:
    return table.join(table.selectExpr("k", "b AS c"), "k").groupBy("k").agg({"c": "sum"})


def seconds(query: Any) -> float:
    started = time.perf_counter()
    query.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - started


def compared(
    tables: dict[str, Any], queries: dict[str, Callable[[Any], Any]], rounds: int
) -> dict[tuple[str, str], float]:
    times: dict[tuple[str, str], list[float]] = {}
    for turn in range(rounds + 1):
        for query, make in queries.items():
            for table, frame in tables.items():
                taken = seconds(make(frame))
                if turn:
                    times.setdefault((query, table), []).append(taken)
    return {name: statistics.median(rounds) for name, rounds in times.items()}


def bytes_read(query: Any) -> int:
    """Run a query with one scan, and return the bytes that its tasks read."""
    query.collect()
    plan = query._jdf.queryExecution().executedPlan()
    while plan.getClass().getSimpleName() != "FfqScanExec":
        adaptive = plan.getClass().getSimpleName() == "AdaptiveSparkPlanExec"
        stage = plan.getClass().getSimpleName().endswith("QueryStageExec")
        plan = plan.executedPlan() if adaptive else plan.plan() if stage else plan.children().head()
    return int(plan.metrics().apply("ffq_bytes").value())


def measure(spark: Any, folder: str, rows: int, partitions: int, rounds: int) -> dict[str, float]:
    frame = spark.range(0, rows, 1, 4).selectExpr(
        f"PMOD(HASH(id), {max(rows // 5, 1)}) AS k",
        "id AS a",
        "id / 7 AS b",
        "CAST(id AS INT) AS n",
    )
    frame = frame.selectExpr("CAST(k AS BIGINT) AS k", "a", "b", "n")
    frame.write.parquet(f"{folder}/parquet")
    table = spark.read.parquet(f"{folder}/parquet")
    write(table, f"{folder}/exchange", partitions)
    write(table, f"{folder}/sorted", partitions, sortBy="k")
    tables = {
        "Parquet": table,
        "exchange": spark.read.format("ffqshuffle").load(f"{folder}/exchange"),
        "sorted": spark.read.format("ffqshuffle").load(f"{folder}/sorted"),
    }
    queries = {"groupBy": grouped, "self-join + groupBy": joined}
    answers = {
        query: {str(make(t).agg({"k": "sum", "*": "count"}).first()) for t in tables.values()}
        for query, make in queries.items()
    }
    assert all(len(results) == 1 for results in answers.values()), answers
    times = compared(tables, queries, rounds)
    for (query, name), median in times.items():
        print(f"{query:22} {name:10} {median:7.2f} s")
    ratios = {}
    for query in queries:
        ratios[query] = times[query, "exchange"] / times[query, "Parquet"]
        ratios[f"{query}, sorted"] = times[query, "sorted"] / times[query, "Parquet"]
    columns = [f"(a + {i}) AS c{i}" for i in range(19)]
    write(table.limit(rows // 10).selectExpr("k", *columns), f"{folder}/wide", partitions)
    wide = spark.read.format("ffqshuffle").load(f"{folder}/wide")
    every = bytes_read(wide.selectExpr("SUM(k + " + " + ".join(f"c{i}" for i in range(19)) + ")"))
    two = bytes_read(wide.selectExpr("SUM(k + c7)"))
    ratios["bytes of 2 of 20 columns"] = two / every
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        spark = session(folder)
        ratios = measure(spark, folder, arguments.rows, arguments.partitions, arguments.rounds)
        spark.stop()
    for name, ratio in ratios.items():
        verdict = "met" if ratio <= TARGETS[name] else "MISSED"
        print(f"{name:32} {ratio:5.2f}   target {TARGETS[name]:.2f}   {verdict}")
    sizes = {"rows": arguments.rows, "partitions": arguments.partitions}
    print(json.dumps({**sizes, "ratios": ratios}))


if __name__ == "__main__":
    main()
