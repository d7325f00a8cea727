"""Queries as Spark's jobs: run under a tag, their rows written to an exchange, ended by the tag."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ffq_spark.errors import Unsupported


class SparkJobs:
    """The jobs of callers on one Spark session."""

    def __init__(self, spark: Any, root: str, storage_options: Mapping[str, Any]) -> None:
        context = getattr(spark, "_sc", None)
        if context is None:
            raise Unsupported("queries need a classic Spark session, with a driver in this process")
        self._spark = spark
        self._context = context
        self._root = root.rstrip("/")
        self._storage = storage_options

    def run(self, query: int, sql: str | None, view: str | None) -> None:
        """Run a query to its end; its rows are then an exchange below the root."""
        with self._tagged(_tag(query)):
            frame = self._spark.sql(sql) if sql is not None else self._spark.table(view)
            writer = frame.write.format("ffqshuffle").mode("append").option("partitions", "1")
            for name, value in self._storage.items():
                text = value if isinstance(value, str) else json.dumps(value)
                writer = writer.option(f"storage.{name}", text)
            writer.save(f"{self._root}/{query}")

    def cancel(self, query: int) -> None:
        """End the jobs that a query has now; its tasks are interrupted."""
        self._context.cancelJobsWithTag(_tag(query))

    @contextlib.contextmanager
    def _tagged(self, tag: str) -> Iterator[None]:
        """This thread's jobs are the query's, on the session that was given."""
        jvm = self._spark._jvm
        session = getattr(jvm, "org.apache.spark.sql.classic.SparkSession")
        # Spark looks a source up in the thread's active session, and a new thread has none.
        session.setActiveSession(self._spark._jsparkSession)
        self._context.addJobTag(tag)
        # Tasks that sleep or wait for a Python worker would keep their cores.
        self._context.setInterruptOnCancel(True)
        try:
            yield
        finally:
            self._context.removeJobTag(tag)


def _tag(query: int) -> str:
    return f"ffq-service-{query}"


def told(error: Exception) -> str:
    """What went wrong, without the JVM's stack.

    >>> told(ValueError("no such column JVM stacktrace: at org.apache"))
    'no such column'
    """
    text = str(error).partition("JVM stacktrace:")[0].strip()
    found = re.search(r"\[FFQ_[A-Z_]+\][^\n]*", text)
    return found[0] if found else text or type(error).__name__
