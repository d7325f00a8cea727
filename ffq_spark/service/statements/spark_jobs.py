"""Run statements as Spark jobs under a tag, and cancel them by the tag."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ffq_spark.errors import Unsupported
from ffq_spark.shared_names import Source


class SparkJobs:
    """The jobs of statements on one Spark session. Results become exchanges below a root."""

    def __init__(self, spark: Any, root: str, storage_options: Mapping[str, Any]) -> None:
        context = getattr(spark, "_sc", None)
        if context is None:
            raise Unsupported(
                "statements need a classic Spark session, with its driver in this process"
            )
        self._spark = spark
        self._context = context
        self._root = root.rstrip("/")
        self._storage = storage_options

    def run(self, query: int, sql: str | None, view: str | None) -> None:
        """Run a statement to its end, and write its rows to an exchange below the root."""
        with self._tagged(_tag(query)):
            frame = self._spark.sql(sql) if sql is not None else self._spark.table(view)
            writer = frame.write.format(Source.FORMAT).mode("append").option("partitions", "1")
            for name, value in self._storage.items():
                text = value if isinstance(value, str) else json.dumps(value)
                writer = writer.option(f"storage.{name}", text)
            writer.save(f"{self._root}/{query}")

    def cancel(self, query: int) -> None:
        """Cancel the jobs that a statement has now, and interrupt their tasks."""
        self._context.cancelJobsWithTag(_tag(query))

    @contextlib.contextmanager
    def _tagged(self, tag: str) -> Iterator[None]:
        """Tag the jobs that this thread starts in the block."""
        jvm = self._spark._jvm
        session = getattr(jvm, "org.apache.spark.sql.classic.SparkSession")
        # Spark looks up data sources in the thread's active session; a new thread has none.
        session.setActiveSession(self._spark._jsparkSession)
        self._context.addJobTag(tag)
        # Without interruption, tasks that sleep or wait for a Python worker would keep their cores.
        self._context.setInterruptOnCancel(True)
        try:
            yield
        finally:
            self._context.removeJobTag(tag)


def _tag(query: int) -> str:
    return f"ffq-service-{query}"


def failure_message(error: Exception) -> str:
    """Return the message of a failure for callers, without the JVM's stack trace.

    >>> failure_message(ValueError("no such column JVM stacktrace: at org.apache"))
    'no such column'
    """
    text = str(error).partition("JVM stacktrace:")[0].strip()
    coded = re.search(r"\[FFQ_[A-Z_]+\][^\n]*", text)
    return coded[0] if coded else text or type(error).__name__
