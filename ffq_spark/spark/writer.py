"""Batch writes: Spark runs the tasks, the ledger decides which of their attempts count."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ffq_spark.errors import BadCommit, Canceled
from ffq_spark.exchange.cancel import end_unfinished, read_cancel
from ffq_spark.exchange.job import WriteJob
from ffq_spark.exchange.ledger import AttemptOutput, Ledger
from ffq_spark.exchange.writer import write_attempt
from ffq_spark.format.layout import spark_attempt
from ffq_spark.spark.worker import freeze_heap
from ffq_spark.store import Store


@dataclass
class TaskMessage(WriterCommitMessage):
    """What a task attempt tells the commit: the only word on which attempts count."""

    output: AttemptOutput


class ExchangeWriter(DataSourceArrowWriter):
    """One query: opened on the driver, written by tasks, ended by commit or abort."""

    def __init__(self, store: Store, job: WriteJob) -> None:
        self._store = store
        self._job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        freeze_heap()
        task = TaskContext.get()
        assert task is not None
        attempt = spark_attempt(task.taskAttemptId())
        return TaskMessage(
            write_attempt(self._store, self._job, task.partitionId(), attempt, iterator)
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        outputs = []
        for message in messages:
            if not isinstance(message, TaskMessage):
                raise BadCommit("a task sent no message")
            outputs.append(message.output)
        job = self._job
        request = read_cancel(self._store, job.query.query)
        if request is not None:
            raise Canceled(f"canceled by {request.who}: {request.message}")
        Ledger(self._store).commit(job.query, job.exchange, outputs, job.stats_fields)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        done = sum(message is not None for message in messages)
        reason = f"Spark aborted the write; {done} of {len(messages)} tasks had finished"
        end_unfinished(self._store, self._job.query.query, reason)
