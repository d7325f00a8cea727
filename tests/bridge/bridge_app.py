"""A driver application for the bridge's tests: one write whose last task waits at a gate.

    python bridge_app.py ROOT GATE [appends]

Task 1 waits until the file GATE exists, so that a test can act in the middle of the write. With
`appends` the application adds steps of ten rows instead, until the file GATE.stop exists.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

import ffq_spark as ffq

ROWS = 1000


def waiting(gate: str) -> Any:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        while TaskContext.get().partitionId() == 1 and not os.path.exists(gate):
            time.sleep(0.05)

    return run


def write(frame: Any, root: str) -> None:
    writer = frame.write.format("ffqshuffle").mode("append")
    writer.option("keys", "id").option("partitions", 4).save(root)


def main() -> None:
    root, gate, *rest = sys.argv[1:]
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ffq.lease.seconds", os.environ.get("LEASE", "2"))
    builder = builder.config("spark.driver.memory", "512m")
    spark = ffq.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    print("started", flush=True)
    if rest == ["appends"]:
        while not os.path.exists(gate + ".stop"):
            write(spark.range(10, numPartitions=1), root)
            print("appended", flush=True)
    else:
        write(spark.range(ROWS, numPartitions=2).mapInArrow(waiting(gate), "id long"), root)
        print("committed", flush=True)
        while not os.path.exists(gate + ".stop"):
            time.sleep(0.05)
    spark.stop()


if __name__ == "__main__":
    main()
