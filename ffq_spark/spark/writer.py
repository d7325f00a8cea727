"""Batch writes: Spark runs the tasks, and the ledger commits one attempt of each."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ffq_spark.errors import AlreadyCommitted, BadCommit, CommittedUnconfirmed
from ffq_spark.exchange.ledger.cancel import end_unfinished, refuse_canceled
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.ledger.sealing import AttemptOutput
from ffq_spark.exchange.write.attempt_writer import write_attempt
from ffq_spark.exchange.write.commit import commit_write
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.exchange.write.prepare import batch_delivery
from ffq_spark.format.paths import spark_attempt
from ffq_spark.format.records import Outcome
from ffq_spark.options import WriteOptions
from ffq_spark.spark.worker import freeze_heap
from ffq_spark.store import Store

Message = TypeVar("Message", bound=WriterCommitMessage)

logger = logging.getLogger(__name__)


def all_messages(messages: list[WriterCommitMessage | None], kind: type[Message]) -> list[Message]:
    """Return the messages of all tasks, or raise BadCommit if one is missing."""
    received = [message for message in messages if isinstance(message, kind)]
    if len(received) != len(messages):
        missing = len(messages) - len(received)
        raise BadCommit(f"{missing} of {len(messages)} tasks sent no message")
    return received


@contextmanager
def committed_is_success() -> Iterator[None]:
    """Let Spark's job succeed if its rows are committed but not visible yet.

    A failed job would be run again, and its rows would be written twice.
    """
    try:
        yield
    except (AlreadyCommitted, CommittedUnconfirmed) as error:
        logger.warning("%s", error)


def abort_query(store: Store, query: int, reason: str) -> None:
    """End a query that Spark aborts, or raise AlreadyCommitted if it is committed.

    The process of a commit may die after the outcome. Spark shows this error beside its own.
    """
    ended = end_unfinished(store, query, reason)
    if ended.outcome is Outcome.COMMITTED:
        Ledger(store).confirm(ended)
        raise AlreadyCommitted(f"query {query} was committed before Spark aborted it")


def streaming_query(task: TaskContext) -> str:
    """Get the id of the streaming query that runs a task, also by `foreachBatch`, or ""."""
    return task.getLocalProperty("sql.streaming.queryId") or ""


@dataclass
class TaskMessage(WriterCommitMessage):
    """The output of a finished task attempt; Spark sends one attempt of each task to the commit."""

    output: AttemptOutput
    streaming_query: str


class ExchangeWriter(DataSourceArrowWriter):
    """One query: opened on the driver, written by tasks, ended by commit or abort."""

    def __init__(self, store: Store, job: WriteJob, options: WriteOptions) -> None:
        self._store = store
        self._job = job
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Write one map attempt in a Spark task, and send its output to the commit."""
        task = TaskContext.get()
        assert task is not None
        streaming = streaming_query(task)
        # Only tasks know their streaming query: check the options before rows are written.
        batch_delivery(self._options, streaming)
        attempt = spark_attempt(task.taskAttemptId())
        output = write_attempt(self._store, self._job, task.partitionId(), attempt, iterator)
        freeze_heap()
        return TaskMessage(output, streaming)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the attempts whose messages Spark's driver accepted, one for each map task."""
        received = all_messages(messages, TaskMessage)
        streaming = {message.streaming_query for message in received} or {""}
        if len(streaming) != 1:
            raise BadCommit("several streaming queries ran the tasks of one write")
        refuse_canceled(self._store, self._job.query.query)
        delivery = batch_delivery(self._options, streaming.pop())
        outputs = [message.output for message in received]
        with committed_is_success():
            commit_write(self._store, self._job, outputs, delivery)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """End the query without a step; deleting its files is left to the gc."""
        done = sum(message is not None for message in messages)
        reason = f"Spark aborted the write; {done} of {len(messages)} tasks had finished"
        abort_query(self._store, self._job.query.query, reason)
