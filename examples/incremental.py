"""Keep a keyed aggregate up to date, step by step, without computing it again.

    python examples/incremental.py

Orders are added and deleted as rows with a weight: 1 adds a row, -1 deletes one. A stream follows
them and keeps the sum and the count of each customer in a second exchange: for each customer whose
orders change in a step, it deletes the old row and adds a new one. The program checks that the
result of every step equals the aggregate of all orders.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from typing import Any

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import ffq_spark as ffq

FORMAT = "ffqshuffle"
STEPS = 6


def arrivals(seed: int = 7) -> list[list[tuple[int, int, int]]]:
    """Make the orders (customer, amount, weight) of each step: some are new, some are deleted."""
    choose = random.Random(seed)
    current: list[tuple[int, int]] = []
    steps = []
    for _ in range(STEPS):
        deleted = [current.pop(choose.randrange(len(current))) for _ in range(min(len(current), 5))]
        new = [(choose.randrange(20), choose.randrange(1, 100)) for _ in range(30)]
        current += new
        steps.append([(*order, 1) for order in new] + [(*order, -1) for order in deleted])
    return steps


def totals_of(orders: DataFrame) -> DataFrame:
    """Aggregate a Z-set of orders; a customer without orders has no row."""
    sums = orders.groupBy("customer").agg(
        F.sum(F.col("amount") * F.col("w")).alias("amount"), F.sum("w").alias("orders")
    )
    return sums.where("orders != 0")


def keep(spark: SparkSession, root: str) -> Any:
    """Make the function that corrects the totals in `root` for each batch of changed orders."""

    def correct(changes: DataFrame, batch: int) -> None:
        delta = changes.groupBy("customer").agg(
            F.sum(F.col("amount") * F.col("w")).alias("d_amount"), F.sum("w").alias("d_orders")
        )
        if batch == 0:
            old = spark.createDataFrame([], "customer long, amount long, orders long, w long")
        else:
            # Read the state before this batch, even if Spark runs the batch again.
            old = read(spark, root, asOfStep=batch, consolidate=True)
        old = old.join(delta.select("customer"), "customer", "left_semi")
        new = old.unionByName(
            delta.selectExpr("customer", "d_amount AS amount", "d_orders AS orders", "1L AS w")
        )
        new = new.groupBy("customer").agg(
            F.sum("amount").alias("amount"), F.sum("orders").alias("orders")
        )
        rows = new.where("orders != 0").withColumn("w", F.lit(1).cast("long"))
        corrections = rows.unionByName(old.withColumn("w", -F.col("w")))
        options = {"keys": "customer", "partitions": 4, "weightColumn": "w"}
        write = corrections.write.format(FORMAT).mode("append").options(**options)
        write.options(streamId="totals", batch=batch).save(root)

    return correct


def read(spark: SparkSession, root: str, **options: Any) -> DataFrame:
    return spark.read.format(FORMAT).options(**options).load(root)


def main() -> None:
    """Write the orders, follow them with a stream, and check the totals of every step."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "4")
    spark = ffq.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    folder = tempfile.mkdtemp(prefix="ffq-incremental-")
    orders, totals = f"{folder}/orders", f"{folder}/totals"
    for step in arrivals():
        df = spark.createDataFrame(step, "customer long, amount long, w long")
        options = {"keys": "customer", "partitions": 4, "weightColumn": "w"}
        df.write.format(FORMAT).mode("append").options(**options).save(orders)
    stream = spark.readStream.format(FORMAT).option("maxStepsPerTrigger", 1).load(orders)
    query = stream.writeStream.foreachBatch(keep(spark, totals)).trigger(availableNow=True)
    query.option("checkpointLocation", f"{folder}/checkpoint").start().awaitTermination()
    for step in range(1, STEPS + 1):
        totals_kept = read(spark, totals, asOfStep=step, consolidate=True).drop("w")
        expected = totals_of(read(spark, orders, asOfStep=step))
        same = sorted(totals_kept.collect()) == sorted(expected.collect())
        print(f"step {step}: {totals_kept.count()} customers, equal to all orders: {same}")
        if not same:
            sys.exit(f"step {step} differs")
    spark.stop()


if __name__ == "__main__":
    main()
