"""Batch writes: Spark runs the tasks, the ledger decides which of their attempts count."""

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
    """The messages of all tasks; one that is missing is an error."""
    found = [message for message in messages if isinstance(message, kind)]
    if len(found) != len(messages):
        raise BadCommit("a task sent no message")
    return found


@contextmanager
def committed_is_success() -> Iterator[None]:
    """Let Spark's job succeed where the rows are committed and only not visible yet.

    A job that failed would be run again, and its rows would be there twice.
    """
    try:
        yield
    except (AlreadyCommitted, CommittedUnconfirmed) as error:
        logger.warning("%s", error)


def abort_query(store: Store, query: int, reason: str) -> None:
    """End a query that Spark gives up, or say that it is committed all the same.

    A commit may die after the outcome, with its process; Spark shows this error beside its own.
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
    """What a task attempt tells the commit: the only word on which attempts count."""

    output: AttemptOutput
    streaming_query: str


class ExchangeWriter(DataSourceArrowWriter):
    """One query: opened on the driver, written by tasks, ended by commit or abort."""

    def __init__(self, store: Store, job: WriteJob, options: WriteOptions) -> None:
        self._store = store
        self._job = job
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        task = TaskContext.get()
        assert task is not None
        streaming = streaming_query(task)
        # Only tasks see who runs them: refuse options that do not fit before rows are written.
        batch_delivery(self._options, streaming)
        attempt = spark_attempt(task.taskAttemptId())
        output = write_attempt(self._store, self._job, task.partitionId(), attempt, iterator)
        freeze_heap()
        return TaskMessage(output, streaming)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        found = all_messages(messages, TaskMessage)
        streaming = {message.streaming_query for message in found} or {""}
        if len(streaming) != 1:
            raise BadCommit("the tasks of one write were run by several streaming queries")
        refuse_canceled(self._store, self._job.query.query)
        delivery = batch_delivery(self._options, streaming.pop())
        outputs = [message.output for message in found]
        with committed_is_success():
            commit_write(self._store, self._job, outputs, delivery)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        done = sum(message is not None for message in messages)
        reason = f"Spark aborted the write; {done} of {len(messages)} tasks had finished"
        abort_query(self._store, self._job.query.query, reason)
