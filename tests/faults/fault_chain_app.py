"""Two streams in one driver, from a first exchange to a second, and from the second to a third.

Arguments: the folder, and `forever` or `once`. The application prints `started` when a stream runs,
and `ready` when both have caught up.
"""

from __future__ import annotations

import os
import sys
from typing import Any

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyspark.sql import SparkSession

import ffq_spark as ffq

FORMAT = "ffqshuffle"
LINKS = (("first", "second"), ("second", "third"))


def main(folder: str, how: str) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1")
    spark = ffq.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    queries: list[Any] = []
    for source, target in LINKS:
        for query in queries:
            query.processAllAvailable()
        df = (
            spark.readStream.format(FORMAT)
            .option("maxStepsPerTrigger", 2)
            .load(f"{folder}/{source}")
        )
        stream = df.writeStream.format(FORMAT).options(keys="k", partitions=2, streamId=target)
        stream = stream.option("checkpointLocation", f"{folder}/checkpoints/{target}")
        stream = stream.option("requireOffsets", "true").trigger(processingTime="0 seconds")
        queries.append(stream.start(f"{folder}/{target}"))
        print("started", flush=True)
    for query in queries:
        query.processAllAvailable()
    print("ready", flush=True)
    if how == "forever":
        spark.streams.awaitAnyTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
