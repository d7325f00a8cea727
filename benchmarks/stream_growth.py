"""Compare the cost of batches at the beginning and the end of a stream of 1,000 micro-batches.

    python benchmarks/stream_growth.py [--batches 1000] [--rows 1000]

Spark's rate source writes a million rows to an exchange. Figures are mean milliseconds over 100
neighbouring batches: `addBatch` is Spark's time for the tasks and the commit of a batch, and
`plan` is the time to plan a read of the newest snapshot while the stream runs. Target: a ratio of
at most 1.5 between the end and the beginning.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyspark.sql import SparkSession

import ffq_spark as ffq

WARM_UP = 10


def plan_ms(exchange: ffq.Exchange) -> float:
    started = time.perf_counter()
    exchange.parts()
    return (time.perf_counter() - started) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=1000)
    arguments = parser.parse_args()
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    kept = str(arguments.batches + WARM_UP + 10)
    builder = builder.config("spark.sql.streaming.numRecentProgressUpdates", kept)
    spark = ffq.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    folder = tempfile.mkdtemp(prefix="ffq-bench-")
    source = spark.readStream.format("rate-micro-batch").options(
        rowsPerBatch=arguments.rows, numPartitions=1
    )
    stream = source.load().writeStream.format("ffqshuffle").options(keys="value", partitions=4)
    query = stream.option("checkpointLocation", f"{folder}/checkpoint").start(f"{folder}/root")
    exchange = ffq.Exchange(f"{folder}/root")
    plans: list[tuple[int, float]] = []
    done = 0
    while done < arguments.batches + WARM_UP:
        progress = query.lastProgress
        done = progress["batchId"] + 1 if progress else 0
        if done:
            plans.append((done, plan_ms(exchange)))
        if query.exception():
            raise SystemExit(str(query.exception()))
        time.sleep(0.3)
    updates = [p for p in query.recentProgress if p["batchId"] >= WARM_UP]
    query.stop()
    spark.stop()
    window = min(100, arguments.batches // 3)
    adds = [p["durationMs"]["addBatch"] for p in updates][: arguments.batches]
    first = [ms for number, ms in plans if WARM_UP <= number < WARM_UP + window]
    last = [ms for number, ms in plans if number >= arguments.batches + WARM_UP - window]
    result = {
        "batches": len(adds),
        "rows": exchange.info().rows,
        "addBatch_ms": _compared(adds[:window], adds[-window:]),
        "plan_ms": _compared(first, last),
        "wanted_ratio": 1.5,
    }
    print(json.dumps(result, indent=2))


def _compared(first: list[float], last: list[float]) -> dict[str, float]:
    means = statistics.mean(first), statistics.mean(last)
    return {
        "first": round(means[0], 1),
        "last": round(means[1], 1),
        "ratio": round(means[1] / means[0], 2),
    }


if __name__ == "__main__":
    main()
