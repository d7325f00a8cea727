"""Write a step from several processes that share only storage, such as callers of a service.

The state that Spark's driver keeps in memory is on storage here: the query, the job of its map
tasks, and the output of every attempt. So any process can continue where another ended.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext

import pyarrow as pa

from ffq_spark.errors import (
    AlreadyCommitted,
    BadCommit,
    Canceled,
    DuplicateBatch,
    Fenced,
    FfqError,
    QueryEnded,
    QueryNotFound,
    ReplayMismatch,
    Rows,
    StoreFailed,
)
from ffq_spark.exchange.ledger import leases
from ffq_spark.exchange.ledger.cancel import end_unfinished, refuse_canceled
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.ledger.sealing import AttemptOutput
from ffq_spark.exchange.write import map_outputs
from ffq_spark.exchange.write.attempt_writer import write_attempt
from ffq_spark.exchange.write.commit import commit_write, repeat_answer
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.exchange.write.prepare import batch_delivery, new_initiator, prepare
from ffq_spark.format import paths
from ffq_spark.format.paths import AttemptId
from ffq_spark.format.records import (
    ExchangeRecord,
    JobRecord,
    Outcome,
    OutcomeRecord,
    QueryRecord,
    StepRecord,
)
from ffq_spark.options import WriteOptions
from ffq_spark.store import Store

logger = logging.getLogger(__name__)


class SharedWrite:
    """A query that several processes write through storage.

    >>> store = Store("memory://doc-shared-write")
    >>> schema = pa.schema([("k", pa.int64())])
    >>> write = SharedWrite.begin(store, schema, {"keys": "k", "partitions": "2"})
    >>> _ = write.put(0, [pa.record_batch([[1, 2, 3]], schema=schema)])
    >>> SharedWrite.open(store, write.query).commit(map_tasks=1).body.rows
    3
    """

    def __init__(
        self, store: Store, query: QueryRecord, exchange: ExchangeRecord, options: WriteOptions
    ) -> None:
        self._store = store
        self._ledger = Ledger(store)
        self._record = query
        self._delivery = batch_delivery(options)
        self._job = WriteJob.of(exchange, query, options)

    @property
    def query(self) -> int:
        return self._record.query

    @property
    def lease_seconds(self) -> int:
        return self._record.lease_seconds

    @classmethod
    def begin(
        cls,
        store: Store,
        schema: pa.Schema,
        given_options: Mapping[str, str],
        *,
        mode: str = "append",
        lease_seconds: int = 0,
    ) -> SharedWrite:
        """Begin a query; `given_options` are options of a write, in Spark's spelling."""
        options = WriteOptions.resolve(given_options, environment={})
        batch_delivery(options)
        exchange = prepare(store, options, schema)
        query = Ledger(store).begin(
            mode,
            new_initiator(),
            stage=options.stage,
            query=options.query,
            lease_seconds=lease_seconds,
        )
        leases.take(store, query)
        job = JobRecord(query.query, exchange.encode().decode(), json.dumps(dict(given_options)))
        store.create_once(paths.job(query.query), job.encode())
        return cls(store, query, exchange, options)

    @classmethod
    def open(cls, store: Store, query: int, *, buffer_bytes: int | None = None) -> SharedWrite:
        """Open a query that this or another process began."""
        path = paths.job(query)
        data, opened = store.read_many([path, paths.query(query)])
        if data is None or opened is None:
            message = f"query {query} is not a shared write"
            raise QueryNotFound(message, path=store.url(paths.QUERIES), remedy="Begin one first")
        job = JobRecord.decode(data, store.url(path))
        given_options = json.loads(job.options)
        if buffer_bytes is not None:
            given_options["maxBufferBytes"] = str(buffer_bytes)
        exchange = ExchangeRecord.decode(job.exchange.encode(), store.url(path))
        record = QueryRecord.decode(opened, store.url(paths.query(query)))
        return cls(store, record, exchange, WriteOptions.resolve(given_options, environment={}))

    def put(
        self, map_task: int, batches: Iterable[pa.RecordBatch], attempt: int = 0
    ) -> AttemptOutput:
        """Write and register one attempt of a map task; attempt 0 means the next free number."""
        self._refuse_ended()
        self.renew_lease()
        id = map_outputs.claim(
            self._store, AttemptId(self.query, self._record.stage, map_task, attempt)
        )
        with self._lease_kept():
            output = write_attempt(self._store, self._job, map_task, id.attempt, batches)
        self._refuse_ended()
        map_outputs.register(self._store, output)
        self.renew_lease()
        return output

    def register(self, map_task: int, attempt: int) -> AttemptOutput:
        """Register an attempt that another program wrote to storage, after reading all of it."""
        self._refuse_ended()
        id = AttemptId(self.query, self._record.stage, map_task, attempt)
        output = map_outputs.read_output(self._store, id)
        if output is None:
            self.renew_lease()
            with self._lease_kept():
                output = map_outputs.examine(self._store, self._job, id)
            self._refuse_ended()
            map_outputs.register(self._store, output)
        self.renew_lease()
        return output

    def heartbeat(self) -> None:
        """Renew the lease; raise QueryEnded or Canceled if the query has ended, and needs none."""
        self._refuse_ended()
        self.renew_lease()

    def renew_lease(self) -> None:
        """Renew the lease of the query, if it has one."""
        if self._record.lease_seconds:
            leases.renew(self._store, self._record.initiator, self._record.lease_seconds)

    def _lease_kept(self) -> AbstractContextManager[None]:
        """Keep renewing the lease in the background while the block runs."""

        def renew() -> None:
            # A query that has ended has released its lease.
            if self._ledger.outcome(self.query) is None:
                self.renew_lease()

        seconds = self._record.lease_seconds
        return leases.keep_renewed(renew, seconds) if seconds else nullcontext()

    def commit(self, map_tasks: int) -> StepRecord | None:
        """Commit the outputs of the map tasks 0 to `map_tasks - 1` as a step.

        Returns None for a stream's batch that is in the log already. A commit whose answer was
        lost may be repeated.
        """
        try:
            self._refuse_ended()
            self.renew_lease()
            with self._lease_kept():
                outputs = map_outputs.registered_outputs(self._store, self._job, map_tasks)
                step = commit_write(self._store, self._job, outputs, self._delivery)
        except FfqError as error:
            if error.rows is not Rows.NEVER and not isinstance(error, AlreadyCommitted):
                raise
            # Another call of the same commit may have ended the query, also with a step.
            ended = self._outcome_after(error)
            if ended is None:
                raise
            self._release()
            return self._answer(ended, error)
        self._release()
        return step

    def _outcome_after(self, error: FfqError) -> OutcomeRecord | None:
        """Return the outcome of a query whose commit failed, or None if it may be repeated."""
        if not isinstance(error, StoreFailed):
            try:
                return self._ledger.outcome(self.query)
            except FfqError as failure:
                error = failure
        return self._ledger.settle(self.query, error)

    def _answer(self, ended: OutcomeRecord, error: FfqError) -> StepRecord | None:
        """Answer a failed commit by the outcome of its query, or raise why it has no step."""
        discarded = (DuplicateBatch.code, ReplayMismatch.code)
        if ended.outcome is Outcome.COMMITTED or ended.code in discarded:
            return repeat_answer(self._store, ended, self._delivery)
        if isinstance(error, BadCommit):
            # gc deletes the map outputs of a query that it has fenced.
            message = f"query {self.query} has ended already as {ended.outcome.value}"
            raise Fenced(f"{message}: {ended.message}") from error
        raise error

    def abort(self, reason: str) -> OutcomeRecord:
        """End the query without a step, unless it has ended; return its outcome."""
        outcome = end_unfinished(self._store, self.query, reason)
        self._release()
        return outcome

    def _release(self) -> None:
        """Delete the lease of the query, which has ended; an error of storage is only logged."""
        if self._record.lease_seconds:
            try:
                leases.release(self._store, self._record.initiator)
            except StoreFailed as error:
                logger.warning("the lease of query %d stays: %s", self.query, error)

    def _refuse_ended(self) -> None:
        outcome = self._ledger.outcome(self.query)
        if outcome is not None:
            raise QueryEnded(f"query {self.query} has ended already as {outcome.outcome.value}")
        try:
            refuse_canceled(self._store, self.query)
        except Canceled as error:
            ended = end_unfinished(self._store, self.query, error.message)
            if ended.outcome is Outcome.CANCELED:
                raise
            # The query ended after the outcome was looked up.
            message = f"query {self.query} has ended already as {ended.outcome.value}"
            raise QueryEnded(message) from None
