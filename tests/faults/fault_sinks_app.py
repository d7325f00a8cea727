"""A stream that writes each batch to three exchanges, and is killed once before one of the writes.

Arguments: the folder, the batch in which to die, and the sink before which to die.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyspark.sql import SparkSession

import ffq_spark as ffq

FORMAT = "ffqshuffle"


def main(folder: str, deadly: str, before: str) -> None:
    marker = Path(folder, "died")
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = ffq.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")

    def spread(rows: Any, batch: int) -> None:
        for sink in ("a", "b", "c"):
            if (batch, sink) == (int(deadly), before) and not marker.exists():
                marker.touch()
                os.killpg(0, signal.SIGKILL)
            write = rows.write.format(FORMAT).options(keys="k", partitions=2).mode("append")
            write.options(streamId="s", batch=batch).save(f"{folder}/{sink}")

    stream = (
        spark.readStream.format(FORMAT).option("maxStepsPerTrigger", 1).load(f"{folder}/source")
    )
    query = stream.writeStream.foreachBatch(spread).trigger(availableNow=True)
    query.option("checkpointLocation", f"{folder}/checkpoint").start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
