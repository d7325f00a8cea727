"""Run a write, a read, a gc and a micro-batch, and print when each began and ended.

`trace.py` runs this file as a process of its own, with the profiler of `hook/` in it and in all
Python processes of its Spark session.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from ffq_spark import Exchange

times: dict[str, tuple[int, int]] = {}


@contextmanager
def scene(name: str) -> Iterator[None]:
    begin = time.monotonic_ns()
    yield
    times[name] = (begin, time.monotonic_ns())


def copy_attempt(root: Path) -> None:
    """Leave a stale attempt behind, as a speculative task does."""
    (index,) = root.glob("shuffle/*/*/0/*/index.json")
    shutil.copytree(index.parent, index.parent.with_name(str(int(index.parent.name) + 1)))


def main(folder: Path) -> None:
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    rows = spark.range(0, 10, 1, 1).selectExpr("id AS k", "id * 2 AS v")
    options = {"keys": "k", "partitions": "2"}
    table, copy, source = folder / "table", folder / "copy", folder / "source"

    with scene("write"):
        rows.write.format("ffqshuffle").options(**options).mode("append").save(str(table))
    with scene("read"):
        assert len(spark.read.format("ffqshuffle").load(str(table)).collect()) == 10

    rows.write.parquet(str(source))
    stream = spark.readStream.schema("k LONG, v LONG").parquet(str(source))
    sink = stream.writeStream.format("ffqshuffle").options(**options)
    sink = sink.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    with scene("micro-batch"):
        sink.start(str(copy)).awaitTermination()
    spark.stop()

    copy_attempt(table)
    with scene("gc"):
        assert Exchange(str(table)).gc(ttl=0).attempts == 1
    print(json.dumps(times))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
