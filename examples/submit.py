"""A plain PySpark job for spark-submit. The plugin is configured outside it, in a conf file.

spark-submit --properties-file conf/spark-defaults.conf examples/submit.py ROOT
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def main() -> None:
    root = sys.argv[1]
    spark = SparkSession.builder.appName("ffq submit example").getOrCreate()
    orders = spark.range(10_000, numPartitions=2).selectExpr(
        "id AS order_id", "id % 100 AS customer_id", "id / 7 AS amount"
    )
    writer = orders.write.format("ffqshuffle").mode("append")
    writer.option("keys", "customer_id").option("partitions", 8).save(root)
    read = spark.read.format("ffqshuffle").load(root)
    print("rows", read.where("customer_id = 42").count())
    spark.stop()


if __name__ == "__main__":
    main()
