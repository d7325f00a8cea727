"""A Spark application that appends to an exchange and is killed inside the commit.

Arguments: the root, the number of the commit's change (from 1), `before` or `after`, and a tag
for the rows.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from fault_crashing import CrashingStore, CrashPoint
from pyspark.sql import SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

import ffq_spark as ffq
from ffq_spark.spark.source import FfqShuffleSource
from ffq_spark.spark.writer import ExchangeWriter


class KilledInCommit(ExchangeWriter):
    """Commits through a store that kills the whole driver: Java, Python and this worker."""

    point: CrashPoint
    driver: list[int]

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._store = CrashingStore(self._store.root, None, self.point, self.die)
        super().commit(messages)

    def die(self) -> None:
        for pid in [*self.driver, os.getpid()]:
            os.kill(pid, signal.SIGKILL)


class KilledSource(FfqShuffleSource):
    """The real source, under its own name, with the writer `KilledInCommit`."""

    def writer(self, schema: StructType, overwrite: bool) -> KilledInCommit:
        made = super().writer(schema, overwrite)
        return KilledInCommit(made._store, made._job, made._options)


def main(root: str, change: str, moment: Any, tag: str) -> None:
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = ffq.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    java = spark._jvm.java.lang.ProcessHandle.current().pid()
    KilledInCommit.point = CrashPoint(int(change), moment)
    KilledInCommit.driver = [java, os.getpid()]
    spark.dataSource.register(KilledSource)
    rows = spark.range(12, numPartitions=2).selectExpr("id AS k", f"{tag}L AS tag")
    rows.write.format("ffqshuffle").mode("append").save(root)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
