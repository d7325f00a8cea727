"""Count the requests of a write and a read on a real S3 server, and measure the cost of credits.

    python benchmarks/object_storage.py [--maps 16] [--rows 10000000] [--ranges 1000] [--rounds 5]

Requests: Spark writes a packed exchange with M map tasks and reads all of it with T tasks, and the
server counts the requests. Targets: at most 4 M + 20 for the write, and T M + 20 GETs for the read.

Credits: ranges of 1 MB are read in turns with 64 MiB of credits and without a limit. Targets: a
time ratio of at most 1.15, and a peak of at most the credits plus the largest range.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from s3server import S3Server

PARTITIONS = 64
CREDITS = 64 << 20
NO_LIMIT = 1 << 40
RANGE_ROWS = 62_500


def requests(server: S3Server, maps: int, rows: int) -> dict[str, Any]:
    """Count the requests of one write and one full read through Spark."""
    from pyspark.sql import SparkSession

    import ffq_spark as ffq

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1")
    # The plugin's requests depend on the duration of the job, so it is left out.
    spark = ffq.configure(builder, plugin=False).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    root = f"s3://{server.bucket}/requests"
    options = {**server.spark_options, "keys": "k", "partitions": PARTITIONS, "layout": "packed"}
    df = spark.range(0, rows, 1, maps).selectExpr(
        "id AS k", "rand() AS v", "cast(id AS string) AS s"
    )
    before = server.request_counts()
    df.write.format("ffqshuffle").options(**options).mode("append").save(root)
    written = server.request_counts()
    reader = spark.read.format("ffqshuffle").options(**server.spark_options, minTasks=4).load(root)
    tasks = reader.rdd.getNumPartitions()
    planned = server.request_counts()
    reader.write.format("noop").mode("overwrite").save()
    read = server.request_counts()
    spark.stop()
    write = {kind: written[kind] - before.get(kind, 0) for kind in written}
    gets = read["GET"] - planned["GET"]
    return {
        "measure": "requests",
        "maps": maps,
        "tasks": tasks,
        "write": {kind: count for kind, count in write.items() if count},
        "write_total": sum(write.values()),
        "write_wanted": 4 * maps + 20,
        "read_gets": gets,
        "read_wanted": tasks * maps + 20,
    }


def batches(count: int) -> Iterator[Any]:
    """Yield batches of rows of 16 bytes: about 1 MB for each partition."""
    import numpy as np
    import pyarrow as pa

    for number in range(count):
        key = np.arange(number * RANGE_ROWS, (number + 1) * RANGE_ROWS)
        yield pa.record_batch({"k": key, "v": key / 3})


def credits(server: S3Server, ranges: int, rounds: int) -> dict[str, Any]:
    """Read the same parts with credits and without a limit, in turns."""
    from ffq_spark import Exchange
    from ffq_spark.exchange.write.local_write import write_batches
    from ffq_spark.options import WriteOptions
    from ffq_spark.store import ReadTotals

    root = f"s3://{server.bucket}/credits"
    options = WriteOptions(keys=("k",), partitions=ranges, max_buffer_bytes=4 << 30)
    write_batches(root, batches(ranges), options=options, storage_options=server.storage_options)
    exchange = Exchange(root, server.storage_options)
    largest = max(exchange.parts()["bytes"].to_pylist())
    times: dict[int, list[float]] = {CREDITS: [], NO_LIMIT: []}
    peaks: dict[int, int] = {}
    for turn in range(2 * (rounds + 1)):
        limit = (CREDITS, NO_LIMIT)[turn % 2]
        totals = ReadTotals()
        started = time.perf_counter()
        rows = sum(batch.num_rows for batch in exchange.read(credits=limit, totals=totals))
        assert (rows, totals.requests) == (ranges * RANGE_ROWS, ranges)
        if turn > 1:
            times[limit].append(time.perf_counter() - started)
        peaks[limit] = totals.peak_bytes
    medians = {limit: statistics.median(seconds) for limit, seconds in times.items()}
    return {
        "measure": "credits",
        "ranges": ranges,
        "seconds": round(medians[CREDITS], 3),
        "seconds_without_limit": round(medians[NO_LIMIT], 3),
        "ratio": round(medians[CREDITS] / medians[NO_LIMIT], 3),
        "peak_mib": round(peaks[CREDITS] / (1 << 20), 1),
        "peak_wanted_mib": round((CREDITS + largest) / (1 << 20), 1),
        "peak_without_limit_mib": round(peaks[NO_LIMIT] / (1 << 20), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--maps", type=int, default=16)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--ranges", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with S3Server() as server:
        print(json.dumps(requests(server, arguments.maps, arguments.rows)), flush=True)
        print(json.dumps(credits(server, arguments.ranges, arguments.rounds)), flush=True)


if __name__ == "__main__":
    main()
