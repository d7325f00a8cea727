"""A driver application without ffq_spark in its code, which prints the settings in force.

spark-submit … conf_app.py
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession


def in_worker(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return whether the worker's daemon uses Unix domain sockets."""
    for _ in batches:
        yield pa.record_batch({"value": [os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "False")]})


def main() -> None:
    spark = SparkSession.builder.getOrCreate()
    frame = spark.range(2, numPartitions=2).mapInArrow(in_worker, "value string")
    accumulator = spark.sparkContext.accumulator(0)
    spark.sparkContext.parallelize([1, 2, 3], 2).foreach(accumulator.add)
    server = spark.sparkContext._accumulatorServer.server_address
    facts = {
        "conf": {
            name: spark.conf.get(name, None)
            for name in (
                "spark.sql.execution.arrow.maxBytesPerBatch",
                "spark.python.unix.domain.socket.enabled",
                "spark.sql.python.filterPushdown.enabled",
                "spark.sql.extensions",
                "spark.redaction.regex",
            )
        },
        "workers": sorted({row.value for row in frame.collect()}),
        "driver_socket": "unix" if isinstance(server, str) else "tcp",
        "accumulated": accumulator.value,
    }
    print("facts", json.dumps(facts))
    spark.stop()


if __name__ == "__main__":
    main()
