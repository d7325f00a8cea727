"""Queue, run, cancel and time out callers' statements on Spark.

The result of a statement is an exchange of its own below the results root, so that any number of
rows can be streamed from storage.
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
    StatementActive,
    TimedOut,
    Unavailable,
)
from ffq_spark.exchange.attempts.status import QueryState
from ffq_spark.exchange.ledger import leases
from ffq_spark.format import paths
from ffq_spark.format.ids import new_query
from ffq_spark.options import ServeOptions
from ffq_spark.service.auth.access import Access
from ffq_spark.service.statements.records import ALIVE_SECONDS, EndRecord, StatementRecords
from ffq_spark.service.statements.results_root import RESULTS
from ffq_spark.service.statements.spark_jobs import SparkJobs, failure_message
from ffq_spark.store import Store

logger = logging.getLogger("ffq_spark.service")

# One identifier: Spark would read `parquet.x` as a file.
_VIEW = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_POLL_SECONDS = 0.2
_EXPIRY_SECONDS = 10.0
_SERVICE = "the service"
_MESSAGE_HIDDEN = "only the owner may see the message"


@dataclass
class _Active:
    """A statement of this server that has not ended."""

    query: int
    sql: str | None
    view: str | None
    state: QueryState = QueryState.QUEUED
    deadline: float = float("inf")
    finished: threading.Event = field(default_factory=threading.Event)


class Statements:
    """The statements of one server, on one Spark session."""

    def __init__(
        self,
        spark: Any,
        root: str,
        options: ServeOptions,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        storage = dict(storage_options or {})
        self._jobs = SparkJobs(spark, root, storage)
        self._records = StatementRecords(Store(root, storage))
        self._options = options
        self._lock = threading.Lock()
        self._active: dict[int, _Active] = {}
        self._pool = ThreadPoolExecutor(options.max_queries, thread_name_prefix="ffq-query")
        self._closed = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="ffq-queries", daemon=True)
        self._watcher.start()

    def submit(self, access: Access, sql: str | None, view: str | None) -> int:
        """Queue a statement, given as SQL text or as the name of a view; return its number."""
        if (sql is None) == (view is None):
            raise BadRequest("a statement needs either `sql` or `view`, not both")
        if sql is not None and not self._options.sql:
            raise Forbidden("the service accepts no SQL text, only names of views", option="sql")
        if view is not None and not _VIEW.fullmatch(view):
            raise BadRequest("`view` must be one identifier: letters, digits and `_`")
        statement = _Active(new_query(), sql, view)
        with self._lock:
            limit = self._options.max_queries + self._options.max_queued
            if self._closed.is_set() or len(self._active) >= limit:
                raise Unavailable(
                    f"{len(self._active)} statements are active, and the limit is {limit} "
                    "(options maxQueries and maxQueued)"
                )
            self._active[statement.query] = statement
        try:
            self._records.submit(statement.query, access.name)
            self._pool.submit(self._run, statement)
        except BaseException:
            with self._lock:
                del self._active[statement.query]
            raise
        return statement.query

    def status(self, access: Access, query: int) -> dict[str, Any]:
        """Return a statement's state, with the details that the caller may see."""
        submitted, ended = self._records.read(query)
        statement = self._active.get(query)
        is_here = statement is not None
        if ended is None and not is_here and not self._records.is_active_elsewhere(submitted):
            # Its server has died, so that nobody else would record the end.
            ended = self._end(query, QueryState.FAILED, "the service that ran it is gone")
        state = statement.state if statement else QueryState.RUNNING
        message, ended_at_ms = "", None
        if ended is not None:
            state, ended_at_ms = QueryState[ended.state], ended.at_ms
            # Spark's message for a failure may quote rows.
            may_see_message = not ended.message or access.name in (submitted.owner, ended.who)
            message = ended.message if may_see_message else _MESSAGE_HIDDEN
        # A caller with the scope `cancel` alone needs the state, to know if a cancel was in time.
        may_see_details = access.name == submitted.owner or access.allows("read", RESULTS)
        return {
            "query": query,
            "state": state.name,
            "code": state.value,
            "message": message,
            "owner": submitted.owner if may_see_details else None,
            "submitted_at_ms": submitted.submitted_at_ms if may_see_details else None,
            "ended_at_ms": ended_at_ms if may_see_details else None,
        }

    def cancel(self, access: Access, query: int, reason: str) -> dict[str, Any]:
        """Cancel a statement and its Spark jobs, and return its status."""
        self._records.read(query)
        ended = self._end(query, QueryState.CANCELED, reason, access.name)
        if ended.state == QueryState.CANCELED.name and query in self._active:
            # The watcher cancels jobs that start after this.
            self._jobs.cancel(query)
        return self.status(access, query)

    def require_result(self, access: Access, name: str) -> None:
        """Raise an error unless the caller owns the statement and it succeeded."""
        query = paths.parse_number(name)
        if query is None:
            message = f"{name!r} is not the number of a statement"
            raise QueryNotFound(message, remedy="Ask for the exchange results/NUMBER")
        submitted, ended = self._records.read(query)
        if submitted.owner != access.name:
            raise Forbidden(f"statement {query} belongs to another caller than {access.name!r}")
        if ended is None:
            raise StatementActive(f"statement {query} has not ended")
        if ended.state == QueryState.CANCELED.name:
            raise Canceled(f"canceled by {ended.who}: {ended.message}")
        if ended.state != QueryState.SUCCEEDED.name:
            raise QueryFailed(ended.message)

    def counts(self) -> dict[str, int]:
        """Return the numbers of queued and of running statements."""
        with self._lock:
            states = [statement.state for statement in self._active.values()]
        return {s.name: states.count(s) for s in (QueryState.QUEUED, QueryState.RUNNING)}

    def close(self, seconds: float = 5.0) -> None:
        """Cancel queued and running statements, and wait until Spark has stopped their jobs."""
        self._closed.set()
        with self._lock:
            active = list(self._active.values())
        for statement in active:
            with _errors_logged():
                self._end(statement.query, QueryState.CANCELED, "the service is shutting down")
        self._pool.shutdown(wait=False, cancel_futures=True)
        running = [statement for statement in active if statement.state is QueryState.RUNNING]
        deadline = time.monotonic() + seconds
        while any(not statement.finished.is_set() for statement in running):
            if time.monotonic() > deadline:
                logger.warning("Spark still runs a canceled statement after %s s", seconds)
                break
            with _errors_logged():
                # Cancel without looking at the records: storage may be unavailable.
                for statement in running:
                    self._jobs.cancel(statement.query)
            time.sleep(_POLL_SECONDS)
        self._watcher.join(seconds)

    def _run(self, statement: _Active) -> None:
        query = statement.query
        try:
            if self._records.ended(query) is not None:
                return
            statement.deadline = time.monotonic() + self._options.query_timeout
            statement.state = QueryState.RUNNING
            if self._closed.is_set():
                # `close` waits only for statements that were running when it was called.
                return
            with leases.keep_renewed(self._records.renew, ALIVE_SECONDS):
                self._jobs.run(query, statement.sql, statement.view)
            self._end(query, QueryState.SUCCEEDED, "")
        except Exception as error:
            logger.info("query %d: %s", query, error)
            with contextlib.suppress(Exception):
                # This has no effect if the statement was canceled or timed out: it has ended.
                self._end(query, QueryState.FAILED, failure_message(error))
        finally:
            statement.finished.set()
            with self._lock:
                self._active.pop(query, None)
            if not self._active:
                with _errors_logged():
                    self._records.release()

    def _watch(self) -> None:
        next_expiry = 0.0
        while not self._closed.wait(_POLL_SECONDS):
            with _errors_logged():
                self._cancel_ended()
                if time.monotonic() >= next_expiry:
                    wait = min(_EXPIRY_SECONDS, self._options.results_ttl / 2)
                    next_expiry = time.monotonic() + wait
                    self._records.delete_expired(
                        self._options.results_ttl, self._active.__contains__
                    )

    def _cancel_ended(self) -> None:
        """Cancel the Spark jobs of statements that have ended or timed out."""
        with self._lock:
            running = [s for s in self._active.values() if s.state is QueryState.RUNNING]
        for statement in running:
            if time.monotonic() > statement.deadline:
                limit = self._options.query_timeout
                message = f"statement {statement.query} ran longer than {limit} s"
                error = TimedOut(message, option="queryTimeout")
                self._end(statement.query, QueryState.FAILED, str(error))
            if self._records.ended(statement.query) is not None:
                # Repeatedly: a job may start after its statement was canceled.
                self._jobs.cancel(statement.query)

    def _end(self, query: int, state: QueryState, message: str, who: str = _SERVICE) -> EndRecord:
        return self._records.end(query, state, message, who)


@contextlib.contextmanager
def _errors_logged() -> Iterator[None]:
    """Log errors of the block and carry on: storage or Spark may be unavailable for a while."""
    try:
        yield
    except Exception as error:
        logger.warning("statements: %s", error)
