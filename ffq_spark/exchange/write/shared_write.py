"""Writing a step from many processes that share nothing but storage, or a service.

What Spark's driver keeps in memory lies on storage here: the query, what its map tasks agree on,
and the output of every attempt. So any process may go on where another ended.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext

import pyarrow as pa

from ffq_spark.errors import (
    AlreadyCommitted,
    Canceled,
    DuplicateBatch,
    Fenced,
    QueryEnded,
    QueryNotFound,
    ReplayMismatch,
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
    """A query that is being written, as storage knows it.

    >>> store = Store("memory://doc-shared-write")
    >>> schema = pa.schema([("k", pa.int64())])
    >>> upload = SharedWrite.begin(store, schema, {"keys": "k", "partitions": "2"})
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
        given: Mapping[str, str],
        *,
        mode: str = "append",
        lease_seconds: int = 0,
    ) -> SharedWrite:
        """Open a query; `given` are options of a write, in Spark's spelling."""
        options = WriteOptions.resolve(given, environment={})
        batch_delivery(options)
        exchange = prepare(store, options, schema)
        initiator = new_initiator()
        if lease_seconds:
            leases.renew(store, initiator, lease_seconds)
        query = Ledger(store).begin(
            mode, initiator, stage=options.stage, query=options.query, lease_seconds=lease_seconds
        )
        job = JobRecord(query.query, exchange.encode().decode(), json.dumps(dict(given)))
        store.create_once(paths.job(query.query), job.encode())
        return cls(store, query, exchange, options)

    @classmethod
    def open(cls, store: Store, query: int, *, buffer_bytes: int | None = None) -> SharedWrite:
        """A query that was begun, by whomever."""
        path = paths.job(query)
        data, opened = store.read_many([path, paths.query(query)])
        if data is None or opened is None:
            raise QueryNotFound(f"there is no query {query}", path=store.url(paths.QUERIES))
        job = JobRecord.decode(data, store.url(path))
        given = json.loads(job.options)
        if buffer_bytes is not None:
            given["maxBufferBytes"] = str(buffer_bytes)
        exchange = ExchangeRecord.decode(job.exchange.encode(), store.url(path))
        record = QueryRecord.decode(opened, store.url(paths.query(query)))
        return cls(store, record, exchange, WriteOptions.resolve(given, environment={}))

    def put(
        self, map_task: int, batches: Iterable[pa.RecordBatch], attempt: int = 0
    ) -> AttemptOutput:
        """Write and register one attempt of a map task; attempt 0 is a new one."""
        self._refuse_ended()
        self.beat()
        id = map_outputs.claim(
            self._store, AttemptId(self.query, self._record.stage, map_task, attempt)
        )
        with self._alive():
            output = write_attempt(self._store, self._job, map_task, id.attempt, batches)
        self._refuse_ended()
        map_outputs.register(self._store, output)
        self.beat()
        return output

    def register(self, map_task: int, attempt: int) -> AttemptOutput:
        """Register an attempt that somebody wrote to storage, after a look at all of it."""
        self._refuse_ended()
        id = AttemptId(self.query, self._record.stage, map_task, attempt)
        output = map_outputs.read_output(self._store, id)
        if output is None:
            with self._alive():
                output = map_outputs.examine(self._store, self._job, id)
            map_outputs.register(self._store, output)
        self.beat()
        return output

    def beat(self) -> None:
        """Say that the query is alive."""
        if self._record.lease_seconds:
            leases.renew(self._store, self._record.initiator, self._record.lease_seconds)

    def _alive(self) -> AbstractContextManager[None]:
        """Say so for as long as something is under way, however long it takes."""

        def beat() -> None:
            # A query that has ended has given its lease back.
            if self._ledger.outcome(self.query) is None:
                self.beat()

        seconds = self._record.lease_seconds
        return leases.kept(beat, seconds) if seconds else nullcontext()

    def commit(self, map_tasks: int) -> StepRecord | None:
        """Seal the step of so many map tasks; None for a batch of a stream that is there already.

        A commit whose answer was lost may be repeated.
        """
        try:
            self._refuse_ended()
            found = map_outputs.registered_outputs(self._store, self._job, map_tasks)
            step = commit_write(self._store, self._job, found, self._delivery)
        except (AlreadyCommitted, Fenced, QueryEnded, StoreFailed) as error:
            # Perhaps by another call of the same commit, before this one or beside it.
            done = self._ledger.settle(self.query, error)
            discarded = (DuplicateBatch.code, ReplayMismatch.code)
            if done.outcome is not Outcome.COMMITTED and done.code not in discarded:
                raise
            step = repeat_answer(self._store, done, self._delivery)
        except ReplayMismatch:
            self._release()
            raise
        self._release()
        return step

    def abort(self, reason: str) -> OutcomeRecord:
        """End the query without a step; what ended it first stays."""
        outcome = end_unfinished(self._store, self.query, reason)
        self._release()
        return outcome

    def _release(self) -> None:
        """Give the lease back, if storage lets: the query has ended."""
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
            end_unfinished(self._store, self.query, error.message)
            raise
