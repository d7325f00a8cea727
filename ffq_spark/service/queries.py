"""Queries on Spark for callers: queued, run under a job tag, their rows written to an exchange.

A query's result is an exchange of its own below the results root, so that rows of any number are
streamed from storage. How a query ended is a create-once record there: it never changes, and
outlives the server.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from ffq_spark.errors import (
    BadRequest,
    Canceled,
    Forbidden,
    QueryFailed,
    QueryNotFound,
    TimedOut,
    Unavailable,
    Unsupported,
)
from ffq_spark.exchange.status import QueryState
from ffq_spark.format import layout
from ffq_spark.format.ids import new_query, now_ms, query_time_ms
from ffq_spark.format.records import JsonRecord
from ffq_spark.options import ServeOptions
from ffq_spark.service.access import Access
from ffq_spark.store import Store

logger = logging.getLogger("ffq_spark.service")

RESULTS = "results"
"""The name under which results are read. No served root may have it."""

# One word: `parquet.x` would be a file.
_VIEW = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_TICK_SECONDS = 0.2
_SWEEP_SECONDS = 10.0
_MESSAGE_LENGTH = 2_000
_BY_SERVER = "the service"


@dataclass(frozen=True)
class SubmitRecord(JsonRecord):
    """A query that was taken, and whose it is. Its text is not kept: it may hold secrets."""

    query: int
    owner: str
    submitted_at_ms: int


@dataclass(frozen=True)
class EndRecord(JsonRecord):
    """How a query ended."""

    query: int
    state: str
    message: str
    who: str
    at_ms: int


@dataclass
class _Running:
    """A query of this server that has not ended."""

    query: int
    sql: str | None
    view: str | None
    state: QueryState = QueryState.QUEUED
    deadline: float = float("inf")
    gone: threading.Event = field(default_factory=threading.Event)

    @property
    def tag(self) -> str:
        return f"ffq-service-{self.query}"


class Queries:
    """The queries of one server, on one Spark session."""

    def __init__(
        self,
        spark: Any,
        root: str,
        options: ServeOptions,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._spark = spark
        self._context = _classic_context(spark)
        self._root = root.rstrip("/")
        self._options = options
        self._storage = dict(storage_options or {})
        self._store = Store(root, self._storage)
        self._lock = threading.Lock()
        self._live: dict[int, _Running] = {}
        self._pool = ThreadPoolExecutor(options.max_queries, thread_name_prefix="ffq-query")
        self._closed = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="ffq-queries", daemon=True)
        self._watcher.start()

    # What callers ask for.

    def submit(self, access: Access, sql: str | None, view: str | None) -> int:
        """Take a query, by its SQL text or the name of a view, and queue it."""
        if (sql is None) == (view is None):
            raise BadRequest("a query is either `sql` or a `view`")
        if sql is not None and not self._options.sql:
            raise Forbidden("the service takes no SQL text, only names of views", option="sql")
        if view is not None and not _VIEW.fullmatch(view):
            raise BadRequest("`view` is not the name of a view: one word")
        running = _Running(new_query(), sql, view)
        with self._lock:
            room = self._options.max_queries + self._options.max_queued
            if self._closed.is_set() or len(self._live) >= room:
                raise Unavailable(f"{len(self._live)} queries are running or queued")
            self._live[running.query] = running
        record = SubmitRecord(running.query, access.name, now_ms())
        try:
            self._store.create_once(_submitted(running.query), record.encode())
            self._pool.submit(self._run, running)
        except BaseException:
            with self._lock:
                del self._live[running.query]
            raise
        return running.query

    def status(self, query: int) -> dict[str, Any]:
        """Where a query stands: an end is for ever."""
        submitted, ended = self._records(query)
        state, message, at = QueryState.FAILED, "", None
        running = self._live.get(query)
        if ended is not None:
            state, message, at = QueryState[ended.state], ended.message, ended.at_ms
        elif running is not None:
            state = running.state
        else:
            # Its server is gone, and with it the Spark job or whoever would tell of it.
            ended = self._end(query, QueryState.FAILED, "the service that ran it is gone")
            state, message, at = QueryState[ended.state], ended.message, ended.at_ms
        return {
            "query": query,
            "state": state.name,
            "code": state.value,
            "message": message,
            "owner": submitted.owner,
            "submitted_at_ms": submitted.submitted_at_ms,
            "ended_at_ms": at,
        }

    def cancel(self, access: Access, query: int, reason: str) -> dict[str, Any]:
        """End a query: it is canceled at once, and Spark's job within moments."""
        self._records(query)
        self._end(query, QueryState.CANCELED, reason, access.name)
        return self.status(query)

    def allow_results(self, access: Access, name: str) -> None:
        """Refuse results that are another's, or that there are none of."""
        number = layout.parse_number(name)
        if number is None:
            raise QueryNotFound("there is no such query")
        submitted, ended = self._records(number)
        if submitted.owner != access.name:
            raise Forbidden(f"query {number} is not {access.name!r}'s")
        if ended is None:
            raise QueryFailed(f"query {number} has not ended: ask for its status first")
        if ended.state == QueryState.CANCELED.name:
            raise Canceled(f"canceled by {ended.who}: {ended.message}")
        if ended.state != QueryState.SUCCEEDED.name:
            raise QueryFailed(ended.message)

    def counts(self) -> dict[str, int]:
        """How many queries are queued, and how many run."""
        with self._lock:
            states = [running.state for running in self._live.values()]
        return {s.name: states.count(s) for s in (QueryState.QUEUED, QueryState.RUNNING)}

    def close(self, seconds: float = 5.0) -> None:
        """Cancel what is queued or runs, and wait until Spark is free of it."""
        self._closed.set()
        with self._lock:
            live = list(self._live.values())
        for running in live:
            self._end(running.query, QueryState.CANCELED, "the service is shutting down")
        deadline = time.monotonic() + seconds
        while any(not running.gone.is_set() for running in live) and time.monotonic() < deadline:
            self._enforce()
            time.sleep(_TICK_SECONDS)
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._watcher.join(seconds)

    # How they are run.

    def _run(self, running: _Running) -> None:
        try:
            if self._ended(running.query) is not None:
                return
            running.deadline = time.monotonic() + self._options.query_timeout
            running.state = QueryState.RUNNING
            with self._tagged(running.tag):
                self._write(running)
            self._end(running.query, QueryState.SUCCEEDED, "")
        except Exception as error:
            # A query that was canceled or timed out has ended already; this changes nothing.
            logger.info("query %d: %s", running.query, error)
            with contextlib.suppress(Exception):
                self._end(running.query, QueryState.FAILED, _told(error))
        finally:
            running.gone.set()
            with self._lock:
                self._live.pop(running.query, None)

    @contextlib.contextmanager
    def _tagged(self, tag: str) -> Iterator[None]:
        """This thread's jobs are the query's, on the session that was given."""
        jvm = self._spark._jvm
        session = getattr(jvm, "org.apache.spark.sql.classic.SparkSession")
        # Spark looks a source up in the thread's active session, and a new thread has none.
        session.setActiveSession(self._spark._jsparkSession)
        self._context.addJobTag(tag)
        self._context.setInterruptOnCancel(True)
        try:
            yield
        finally:
            self._context.removeJobTag(tag)

    def _write(self, running: _Running) -> None:
        spark = self._spark
        frame = spark.sql(running.sql) if running.sql is not None else spark.table(running.view)
        writer = frame.write.format("ffqshuffle").mode("append").option("partitions", "1")
        for name, value in self._storage.items():
            text = value if isinstance(value, str) else json.dumps(value)
            writer = writer.option(f"storage.{name}", text)
        writer.save(f"{self._root}/{running.query}")

    def _watch(self) -> None:
        next_sweep = 0.0
        while not self._closed.wait(_TICK_SECONDS):
            try:
                self._enforce()
                if time.monotonic() >= next_sweep:
                    self._sweep()
                    wait = min(_SWEEP_SECONDS, self._options.results_ttl / 2)
                    next_sweep = time.monotonic() + wait
            except Exception as error:
                # Storage or Spark may fail for a while; the next look is soon.
                logger.warning("queries: %s", error)

    def _enforce(self) -> None:
        """Cancel Spark's jobs of queries that have ended, or must."""
        with self._lock:
            live = [r for r in self._live.values() if r.state is QueryState.RUNNING]
        for running in live:
            if time.monotonic() > running.deadline:
                told = TimedOut(f"longer than {self._options.query_timeout} s")
                self._end(running.query, QueryState.FAILED, str(told))
            if self._ended(running.query) is not None:
                # Again and again: a job may start after its query was canceled.
                self._context.cancelJobsWithTag(running.tag)

    def _sweep(self) -> None:
        """Remove the results of queries that ended, or were lost, longer ago than their TTL."""
        before = now_ms() - self._options.results_ttl * 1000
        for entry in self._store.list(""):
            query = layout.parse_number(entry.name.partition(".")[0])
            if query is None or query in self._live or query_time_ms(query) > before:
                continue
            ended = self._ended(query)
            if ended is not None and ended.at_ms > before:
                continue
            for directory in self._store.tree(str(query)):
                self._store.delete_many([name for name, _ in directory.files])
                self._store.delete_directories([directory.path])
            self._store.delete(_submitted(query))
            self._store.delete(_end(query))

    # What is known of them.

    def _records(self, query: int) -> tuple[SubmitRecord, EndRecord | None]:
        path = _submitted(query)
        data = self._store.read_optional(path)
        if data is None:
            raise QueryNotFound(f"there is no query {query}, or its result was removed")
        return SubmitRecord.decode(data, path), self._ended(query)

    def _ended(self, query: int) -> EndRecord | None:
        data = self._store.read_optional(_end(query))
        return None if data is None else EndRecord.decode(data, _end(query))

    def _end(self, query: int, state: QueryState, message: str, who: str = _BY_SERVER) -> EndRecord:
        """End a query, unless it has ended: the first word is the last."""
        record = EndRecord(query, state.name, message[:_MESSAGE_LENGTH], who, now_ms())
        self._store.create_once(_end(query), record.encode())
        return self._ended(query) or record


def _submitted(query: int) -> str:
    return f"{query}.submitted.json"


def _end(query: int) -> str:
    return f"{query}.ended.json"


def _told(error: Exception) -> str:
    """What went wrong, without the JVM's stack."""
    text = str(error).partition("JVM stacktrace:")[0].strip()
    found = re.search(r"\[FFQ_[A-Z_]+\][^\n]*", text)
    return found[0] if found else text or type(error).__name__


def _classic_context(spark: Any) -> Any:
    context = getattr(spark, "_sc", None)
    if context is None:
        raise Unsupported("queries need a classic Spark session, with a driver in this process")
    return context
