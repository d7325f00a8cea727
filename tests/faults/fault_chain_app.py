"""Two streams in one driver, from an exchange to a second and from there to a third.

Arguments: the folder, and `forever` or `once`. A line `ready` says that both streams run.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyspark.sql import SparkSession

import ffq_spark as ffq

FORMAT = "ffqshuffle"
LINKS = (("first", "second"), ("second", "third"))


def main(folder: str, how: str) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1")
    # Each batch more than once in every checkpoint's memory; files stay few.
    spark = ffq.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for source, target in LINKS:
        while not os.path.exists(f"{folder}/{source}/_ffq/exchange.json"):
            for query in spark.streams.active:
                query.processAllAvailable()
        df = (
            spark.readStream.format(FORMAT)
            .option("maxStepsPerTrigger", 2)
            .load(f"{folder}/{source}")
        )
        stream = df.writeStream.format(FORMAT).options(keys="k", partitions=2, streamId=target)
        stream = stream.option("checkpointLocation", f"{folder}/checkpoints/{target}")
        stream.option("requireOffsets", "true").trigger(processingTime="0 seconds").start(
            f"{folder}/{target}"
        )
    print("ready", flush=True)
    if how == "once":
        for query in spark.streams.active:
            query.processAllAvailable()
    else:
        spark.streams.awaitAnyTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
