"""Streaming writes: a micro-batch is a query, and becomes a step by the write rule of streams.

Spark creates two writers for each micro-batch, one for its tasks and one for its commit, and they
do not share memory. So the messages of the tasks carry the query to the commit.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from ffq_spark.errors import BadCommit, FfqError, NoOffsets
from ffq_spark.exchange.ledger.cancel import refuse_canceled
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.ledger.sealing import AttemptOutput
from ffq_spark.exchange.write.attempt_writer import write_attempt
from ffq_spark.exchange.write.commit import commit_write
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.exchange.write.lineage import batch_offsets
from ffq_spark.exchange.write.stream_write import Delivery
from ffq_spark.format.paths import spark_attempt
from ffq_spark.format.records import Offsets, QueryRecord
from ffq_spark.options import WriteOptions
from ffq_spark.spark.worker import freeze_heap
from ffq_spark.spark.writer import (
    abort_query,
    all_messages,
    committed_is_success,
    streaming_query,
)
from ffq_spark.store import Store

logger = logging.getLogger(__name__)


@dataclass
class BatchMessage(WriterCommitMessage):
    """The output of a finished task attempt, its query, and the streaming query that owns it.

    The commit's own writer may have been made in a later routing epoch, so the number of partitions
    comes from the tasks.
    """

    output: AttemptOutput
    query: QueryRecord
    owner: str
    partitions: int


class ExchangeStreamWriter(DataSourceStreamArrowWriter):
    """One micro-batch of one streaming query."""

    def __init__(
        self,
        store: Store,
        job: WriteJob,
        options: WriteOptions,
        spark_checkpoint: str | None,
        storage_options: Mapping[str, Any],
    ) -> None:
        self._store = store
        self._job = replace(job, digests=True)
        self._options = options
        self._spark_checkpoint = spark_checkpoint
        self._storage_options = storage_options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchMessage:
        """Write one map attempt in a Spark task, and send its output to the commit."""
        task = TaskContext.get()
        assert task is not None
        Ledger(self._store).open(self._job.query)
        attempt = spark_attempt(task.taskAttemptId())
        output = write_attempt(self._store, self._job, task.partitionId(), attempt, iterator)
        freeze_heap()
        partitions = self._job.exchange.partitions
        return BatchMessage(output, self._job.query, streaming_query(task), partitions)

    def commit(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        """Commit a batch as the next step, or discard it if it is a re-run of one in the log."""
        received = all_messages(messages, BatchMessage)
        if len({(sent.query, sent.owner, sent.partitions) for sent in received}) != 1:
            raise BadCommit(f"batch {batch_id} needs messages of one query, and of no other")
        query, owner = received[0].query, received[0].owner
        exchange = replace(self._job.exchange, partitions=received[0].partitions)
        refuse_canceled(self._store, query.query)
        delivery = Delivery(
            self._options.stream_id or owner,
            owner,
            batch_id,
            self._options.takeover,
            # Spark re-runs a batch over the same offsets, so its first result is in the log.
            self._options.on_mismatch or "warn",
        )
        outputs = [message.output for message in received]
        job = replace(self._job, query=query, exchange=exchange)
        with committed_is_success():
            commit_write(self._store, job, outputs, delivery, self._offsets(batch_id))

    def _offsets(self, batch: int) -> Offsets | None:
        try:
            if self._spark_checkpoint is None:
                raise NoOffsets(f"the Spark checkpoint of batch {batch} is unknown")
            return batch_offsets(self._spark_checkpoint, batch, self._storage_options)
        except FfqError as error:
            if self._options.require_offsets:
                raise
            if self._spark_checkpoint is not None:
                logger.warning("batch %d is committed without its offsets: %s", batch, error)
            return None

    def abort(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        """End the queries of a batch without a step; a batch that is committed stays."""
        finished = [message for message in messages if isinstance(message, BatchMessage)]
        reason = (
            f"Spark aborted batch {batch_id}; {len(finished)} of {len(messages)} tasks had finished"
        )
        for query in {message.query.query for message in finished}:
            abort_query(self._store, query, reason)
