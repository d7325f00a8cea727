"""The main job, end to end: `make demo`.

Write orders and customers into two exchanges, partitioned by customer, while one task fails. Then
read them back, join them, look up a customer, and read them without Spark in DuckDB and Polars.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

import duckdb
import polars
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console

import ffq_spark as ffq

ORDERS, CUSTOMERS, PARTITIONS = 200_000, 5_000, 16

console = Console(highlight=False, width=110)


@contextmanager
def step(title: str) -> Iterator[None]:
    console.print(f"\n[bold]{title}[/bold]")
    started = time.perf_counter()
    yield
    console.print(f"   [dim]{time.perf_counter() - started:.1f} s[/dim]")


def say(text: str) -> None:
    console.print(f"   {text}", markup=False)


@contextmanager
def stderr_to(log: Path) -> Iterator[None]:
    """Send the standard error of processes that are started inside the block to a file.

    Spark's JVM keeps it, and so do its Python workers. Over Unix sockets Spark's Python daemon
    prints a traceback with BrokenPipeError for each worker whose connection Spark closes: one in
    the task that fails here, and others that were idle for a minute.
    """
    saved = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def print_end(log: Path, lines: int = 40) -> None:
    """Print the last lines of Spark's log to standard error."""
    text = log.read_text(errors="replace") if log.exists() else ""
    print(f"\nthe end of {log}:", *text.splitlines()[-lines:], sep="\n", file=sys.stderr)


def dying_once(marker: str) -> Any:
    """Return a mapInArrow function that ends its process after the first run of partition 1."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if TaskContext.get().partitionId() == 1 and not os.path.exists(marker):
            Path(marker).touch()
            os._exit(1)

    return run


def write(frame: DataFrame, root: str) -> None:
    writer = frame.write.format("ffqshuffle").mode("append")
    writer.option("keys", "customer_id").option("partitions", PARTITIONS).save(root)


def main() -> None:
    base = Path(tempfile.mkdtemp(prefix="ffq-demo-"))
    spark_log = base / "spark.log"
    try:
        run(base / "data", spark_log)
    except BaseException:
        print_end(spark_log)
        raise


def run(data: Path, spark_log: Path) -> None:
    orders_root, customers_root = str(data / "orders"), str(data / "customers")
    failed = data / "failed"
    data.mkdir()
    with step("Starting Spark (2 cores, tasks may fail once)"), stderr_to(spark_log):
        builder = SparkSession.builder.master("local[2,2]").appName("ffq demo")
        builder = builder.config("spark.ui.enabled", "false")
        builder = builder.config("spark.ui.showConsoleProgress", "false")
        spark = ffq.configure(builder).getOrCreate()
        say(f"Spark {spark.version}, ffq_spark {ffq.__version__}")
        say(f"Spark's log, with the error of the task that fails: {spark_log}")

    orders = spark.range(ORDERS, numPartitions=4).select(
        F.col("id").alias("order_id"),
        (F.hash("id") % CUSTOMERS).cast("long").alias("customer_id"),
        (F.col("id") % 997 / 7).alias("amount"),
    )
    customers = spark.range(-CUSTOMERS, CUSTOMERS, numPartitions=2).select(
        F.col("id").alias("customer_id"), F.concat(F.lit("customer "), "id").alias("name")
    )

    with step("Writing two exchanges, hash-partitioned by customer_id; one task fails on the way"):
        flaky = orders.mapInArrow(dying_once(str(failed)), orders.schema)
        write(flaky, orders_root)
        write(customers, customers_root)
        for root in (orders_root, customers_root):
            info = ffq.Exchange(root).info()
            say(f"{Path(root).name}: step {info.step}, {info.rows} rows in {info.parts} parts")
        outcome = "failed" if failed.exists() else "should have failed, and did not"
        say(f"one task of orders {outcome}; the attempt of its retry is the registered one:")
        for state in ffq.Exchange(orders_root).attempts():
            say(f"  map task {state.map_task} attempt {state.attempt}: {state.state}")

    with step("Reading both back with Spark, and joining them"):
        left = spark.read.format("ffqshuffle").load(orders_root)
        right = spark.read.format("ffqshuffle").load(customers_root)
        say(f"orders: {left.count()} rows, customers: {right.count()} rows")
        expected = orders.join(customers, "customer_id").agg(F.sum("amount"), F.count("*")).first()
        total = left.join(right, "customer_id").agg(F.sum("amount"), F.count("*")).first()
        say(f"join: {total[1]} rows, sum {total[0]:.2f}; without exchanges {expected[0]:.2f}")
        assert total[1] == expected[1] and abs(total[0] - expected[0]) < 1e-3
        placed = spark.read.format("ffqshuffle").option("metadataColumns", "true")
        wrong = placed.load(orders_root).where(
            f"_ffq_partition != pmod(hash(customer_id), {PARTITIONS})"
        )
        say(f"rows outside the partition that Spark's own shuffle assigns: {wrong.count()}")

    with step("Looking up one customer, without Spark: one partition is opened"):
        exchange = ffq.Exchange(orders_root)
        table = exchange.lookup(42)
        say(f"customer 42 has {table.num_rows} orders worth {sum(table['amount'].to_pylist()):.2f}")

    with step("DuckDB over the same files"):
        orders_reader = exchange.read(columns=["customer_id", "amount"])
        customers_reader = ffq.Exchange(customers_root).read()
        connection = duckdb.connect()
        connection.register("orders", orders_reader)
        connection.register("customers", customers_reader)
        top = connection.sql(
            "select name, count(*), round(sum(amount), 2) from orders join customers "
            "using (customer_id) group by name order by 3 desc, 1 limit 3"
        ).fetchall()
        for name, count, amount in top:
            say(f"{name}: {count} orders, {amount}")

    with step("Polars, straight from one part's file"):
        part = exchange.parts()["file"][0].as_py()
        frame = polars.read_ipc_stream(str(Path(orders_root, part)))
        say(f"{part}: {frame.height} rows, columns {', '.join(frame.columns)}")

    with step("Replacing the orders; the old snapshot stays readable"):
        recent = orders.where("order_id >= 190000")
        recent.write.format("ffqshuffle").mode("overwrite").save(orders_root)
        before = spark.read.format("ffqshuffle").option("asOfStep", 1).load(orders_root)
        now = spark.read.format("ffqshuffle").load(orders_root)
        say(f"now {now.count()} rows, as of step 1 {before.count()} rows")

    with step("Verifying everything"):
        report = exchange.verify(steps="all")
        say(f"{report.parts} parts, {report.rows} rows: {len(report.findings)} findings")

    with step("Stopping Spark"):
        spark.stop()
        shutil.rmtree(data)
        say(f"done; removed {data} and kept {spark_log}")


if __name__ == "__main__":
    main()
