"""Queries on Spark for callers: queued, run, canceled, timed out.

A query's result is an exchange of its own below the results root, so that rows of any number are
streamed from storage.
"""

from __future__ import annotations

import contextlib
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
)
from ffq_spark.exchange.attempts.status import QueryState
from ffq_spark.exchange.ledger import leases
from ffq_spark.format import paths
from ffq_spark.format.ids import new_query
from ffq_spark.options import ServeOptions
from ffq_spark.service.access import Access
from ffq_spark.service.query_records import ALIVE_SECONDS, EndRecord, QueryRecords
from ffq_spark.service.spark_jobs import SparkJobs, told
from ffq_spark.store import Store

logger = logging.getLogger("ffq_spark.service")

RESULTS = "results"
"""The name under which results are read. No served root may have it."""

# One word: `parquet.x` would be a file.
_VIEW = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_TICK_SECONDS = 0.2
_SWEEP_SECONDS = 10.0
_BY_SERVER = "the service"
_NOT_SHOWN = "why is told to its owner alone"


@dataclass
class _Running:
    """A query of this server that has not ended."""

    query: int
    sql: str | None
    view: str | None
    state: QueryState = QueryState.QUEUED
    deadline: float = float("inf")
    gone: threading.Event = field(default_factory=threading.Event)


class Queries:
    """The queries of one server, on one Spark session."""

    def __init__(
        self,
        spark: Any,
        root: str,
        options: ServeOptions,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        storage = dict(storage_options or {})
        self._jobs = SparkJobs(spark, root, storage)
        self._records = QueryRecords(Store(root, storage))
        self._options = options
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
        try:
            self._records.submitted(running.query, access.name)
            self._pool.submit(self._run, running)
        except BaseException:
            with self._lock:
                del self._live[running.query]
            raise
        return running.query

    def status(self, access: Access, query: int) -> dict[str, Any]:
        """Where a query stands: an end is for ever, and why it came may be the owner's alone."""
        submitted, ended = self._records.of(query)
        running = self._live.get(query)
        if ended is None and running is None and not self._records.is_elsewhere(submitted):
            # Its server is gone, and with it the Spark job or whoever would tell of it.
            ended = self._end(query, QueryState.FAILED, "the service that ran it is gone")
        state = running.state if running else QueryState.RUNNING
        message, at = "", None
        if ended is not None:
            state, at = QueryState[ended.state], ended.at_ms
            # What Spark says of a failure may quote rows.
            shown = not ended.message or access.name in (submitted.owner, ended.who)
            message = ended.message if shown else _NOT_SHOWN
        # Whoever may only cancel needs to know whether it was in time, and no more.
        known = access.name == submitted.owner or access.allows("read", RESULTS)
        return {
            "query": query,
            "state": state.name,
            "code": state.value,
            "message": message,
            "owner": submitted.owner if known else None,
            "submitted_at_ms": submitted.submitted_at_ms if known else None,
            "ended_at_ms": at if known else None,
        }

    def cancel(self, access: Access, query: int, reason: str) -> dict[str, Any]:
        """End a query, and Spark's job with it."""
        self._records.of(query)
        ended = self._end(query, QueryState.CANCELED, reason, access.name)
        running = self._live.get(query)
        if ended.state == QueryState.CANCELED.name and running is not None:
            # A job that starts after this is met by the watcher.
            self._jobs.cancel(query)
        return self.status(access, query)

    def allow_results(self, access: Access, name: str) -> None:
        """Refuse results that are another's, or that there are none of."""
        number = paths.parse_number(name)
        if number is None:
            raise QueryNotFound("there is no such query")
        submitted, ended = self._records.of(number)
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
            with _nonetheless():
                self._end(running.query, QueryState.CANCELED, "the service is shutting down")
        self._pool.shutdown(wait=False, cancel_futures=True)
        started = [running for running in live if running.state is QueryState.RUNNING]
        deadline = time.monotonic() + seconds
        while any(not running.gone.is_set() for running in started):
            if time.monotonic() > deadline:
                logger.warning("a query of Spark is not gone after %s s", seconds)
                break
            with _nonetheless():
                # Not by their records: those may not be there.
                for running in started:
                    self._jobs.cancel(running.query)
            time.sleep(_TICK_SECONDS)
        self._watcher.join(seconds)

    # How they are run.

    def _run(self, running: _Running) -> None:
        try:
            if self._records.ended(running.query) is not None:
                return
            running.deadline = time.monotonic() + self._options.query_timeout
            running.state = QueryState.RUNNING
            if self._closed.is_set():
                # Whoever closes waits only for those that ran before.
                return
            with leases.kept(self._records.renew, ALIVE_SECONDS):
                self._jobs.run(running.query, running.sql, running.view)
            self._end(running.query, QueryState.SUCCEEDED, "")
        except Exception as error:
            # A query that was canceled or timed out has ended already; this changes nothing.
            logger.info("query %d: %s", running.query, error)
            with contextlib.suppress(Exception):
                self._end(running.query, QueryState.FAILED, told(error))
        finally:
            running.gone.set()
            with self._lock:
                self._live.pop(running.query, None)
            if not self._live:
                with _nonetheless():
                    self._records.release()

    def _watch(self) -> None:
        next_sweep = 0.0
        while not self._closed.wait(_TICK_SECONDS):
            with _nonetheless():
                self._enforce()
                if time.monotonic() >= next_sweep:
                    wait = min(_SWEEP_SECONDS, self._options.results_ttl / 2)
                    next_sweep = time.monotonic() + wait
                    self._records.remove_old(self._options.results_ttl, self._live.__contains__)

    def _enforce(self) -> None:
        """Cancel Spark's jobs of queries that have ended, or must."""
        with self._lock:
            live = [r for r in self._live.values() if r.state is QueryState.RUNNING]
        for running in live:
            if time.monotonic() > running.deadline:
                late = TimedOut(f"longer than {self._options.query_timeout} s")
                self._end(running.query, QueryState.FAILED, str(late))
            if self._records.ended(running.query) is not None:
                # Again and again: a job may start after its query was canceled.
                self._jobs.cancel(running.query)

    def _end(self, query: int, state: QueryState, message: str, who: str = _BY_SERVER) -> EndRecord:
        return self._records.end(query, state, message, who)


@contextlib.contextmanager
def _nonetheless() -> Iterator[None]:
    """Storage or Spark may fail for a while; what comes next is done all the same."""
    try:
        yield
    except Exception as error:
        logger.warning("queries: %s", error)
