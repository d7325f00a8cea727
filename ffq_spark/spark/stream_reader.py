"""Streaming reads: each step is read once, in the order of the log.

An offset is the last step that was read. A stream that begins at offset 0 first reads the snapshot
as of the end of its first batch, so steps replaced by then are never read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ffq_spark.errors import ExchangeNotFound, StepNotFound
from ffq_spark.exchange.ledger import consumers
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.ledger.pause import resting_place
from ffq_spark.exchange.scan.following import check_available, next_end, steps_between
from ffq_spark.exchange.scan.snapshot import Snapshot
from ffq_spark.options import ReadOptions
from ffq_spark.spark.read_task import ReadTask, plan_tasks, read_task
from ffq_spark.store import Store

Offset = dict[str, int]


class ExchangeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of the steps of one exchange."""

    def __init__(self, store: Store, options: ReadOptions, schema: StructType) -> None:
        self._store = store
        self._options = options
        self._schema = schema
        self._ledger = Ledger(store)
        self._target: int | None = None

    def initialOffset(self) -> Offset:
        """Return the step before the first one of the stream, and record the stream's consumer."""
        step = self._initial_step()

        def check() -> None:
            latest = self._ledger.log.last_number()
            check_available(self._ledger.log, step, latest, self._options)

        if self._options.consumer:
            # From now on retention keeps the steps that this consumer will read.
            consumers.start_consumer(self._store, self._options.consumer, step, check)
        else:
            check()
        return {"step": step}

    def _initial_step(self) -> int:
        start = self._options.starting_step
        if start == "earliest":
            return 0
        last = self._last_step()
        if start == "latest":
            known = consumers.find(self._store, self._options.consumer)
            return last if known is None else known.step
        if int(start) > last + 1:
            raise StepNotFound(f"there is no step {start} yet; the newest is {last}")
        return int(start) - 1

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a batch as Spark passes it to `latestOffset`."""
        if self._options.max_bytes_per_trigger:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        if self._options.max_steps_per_trigger:
            return ReadMaxFiles(self._options.max_steps_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the last step of a run that ends once it has read what exists now."""
        self._target = self._last_step()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the last step of the next batch, within the read limits and a pause."""
        begin, newest = start["step"], self._last_step()
        if begin > newest:
            message = f"the stream has read step {begin}, but the newest step is {newest}"
            raise StepNotFound(message, path=self._store.url())
        latest = newest if self._target is None else max(self._target, begin)
        latest = resting_place(self._store, begin, latest)
        if isinstance(limit, ReadAllAvailable):
            return {"step": latest}
        return {"step": next_end(self._ledger.log, begin, latest, self._options)}

    def reportLatestOffset(self) -> Offset:
        """Return the newest step, for the progress report of the streaming query."""
        return {"step": self._last_step()}

    def _last_step(self) -> int:
        self._ledger.roll_forward()
        return self._ledger.log.last_number()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Plan the read tasks of a batch: the steps after `start` up to `end`."""
        exchange = self._ledger.exchange()
        if exchange is None:
            raise ExchangeNotFound(f"nothing has been committed to {self._store.url()} yet")
        steps = steps_between(self._ledger.log, start["step"], end["step"], self._options)
        return plan_tasks(Snapshot(self._store, exchange, steps), self._options, self._schema)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of one task in a worker."""
        assert isinstance(partition, ReadTask)
        return read_task(self._store, partition, self._schema, self._options)

    def commit(self, end: Offset) -> None:
        """Record that the stream's consumer, if any, has read all steps up to `end`."""
        if self._options.consumer:
            consumers.record_progress(self._store, self._options.consumer, end["step"])
