"""The writer of a batch write: its tasks, its commit and its abort, without a Spark session."""

from __future__ import annotations

import logging
from typing import Any

import pyarrow as pa
import pytest
from layouts import write_options
from pyspark.sql.datasource import WriterCommitMessage
from spark_task import spark_task

from ffq_spark import Exchange
from ffq_spark.errors import (
    AlreadyCommitted,
    BadCommit,
    BadOption,
    Canceled,
    CommittedUnconfirmed,
    FfqError,
    StoreFailed,
)
from ffq_spark.exchange.ledger.cancel import request_cancel
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.exchange.write.prepare import prepare
from ffq_spark.format.records import Outcome
from ffq_spark.spark.writer import ExchangeWriter, TaskMessage, all_messages, committed_is_success
from ffq_spark.store import Store

SCHEMA = pa.schema([("k", pa.int64())])


def begin(root: str, number: int = 7, **options: Any) -> ExchangeWriter:
    """Begin a query and return its writer, as the source does on Spark's driver."""
    store, chosen = Store(root), write_options(keys=("k",), partitions=2, **options)
    query = Ledger(store).begin("append", "app-1", query=number)
    job = WriteJob.of(prepare(store, chosen, SCHEMA), query, chosen)
    return ExchangeWriter(store, job, chosen)


def run_task(
    writer: ExchangeWriter, map_task: int, task: int, *keys: int, streaming_query: str = ""
) -> TaskMessage:
    with spark_task(map_task, task, streaming_query):
        return writer.write(iter([pa.record_batch({"k": list(keys)}, schema=SCHEMA)]))


def keys_of(root: str) -> list[int]:
    keys: list[int] = Exchange(root).read().read_all()["k"].to_pylist()
    return sorted(keys)


def outcome_on(root: str, number: int = 7) -> Any:
    return Ledger(Store(root)).outcome(number)


def test_a_commit_shows_the_attempts_whose_messages_it_receives(root: str) -> None:
    writer = begin(root)
    first = run_task(writer, 0, 10, 1, 2)
    run_task(writer, 1, 11, 3)
    second = run_task(writer, 1, 12, 4)
    writer.commit([first, second])
    assert keys_of(root) == [1, 2, 4]
    (step,) = Exchange(root).steps()
    assert step.body.attempts == {0: 11, 1: 13}


def test_a_task_without_a_message_refuses_the_commit(root: str) -> None:
    writer = begin(root)
    message = run_task(writer, 0, 10, 1)
    with pytest.raises(BadCommit, match="1 of 2 tasks sent no message"):
        writer.commit([message, None])
    assert outcome_on(root) is None


def test_messages_of_another_kind_do_not_count() -> None:
    with pytest.raises(BadCommit, match="1 of 1 tasks"):
        all_messages([WriterCommitMessage()], TaskMessage)
    assert all_messages([], TaskMessage) == []


def test_tasks_of_two_streaming_queries_are_not_one_write(root: str) -> None:
    writer = begin(root, stream_id="s", batch=0)
    messages = [run_task(writer, n, 10 + n, n, streaming_query=f"query {n}") for n in range(2)]
    with pytest.raises(BadCommit, match="several streaming queries"):
        writer.commit(messages)  # type: ignore[arg-type]
    assert outcome_on(root) is None


def test_the_streaming_query_of_foreach_batch_owns_the_batch(root: str) -> None:
    writer = begin(root, stream_id="s", batch=0)
    writer.commit([run_task(writer, 0, 10, 1, streaming_query="query 1")])
    other = begin(root, 8, stream_id="s", batch=1)
    with pytest.raises(FfqError, match=r"belongs to query 1, not to query 2"):
        other.commit([run_task(other, 0, 10, 2, streaming_query="query 2")])
    assert keys_of(root) == [1]


def test_a_batch_without_a_stream_is_refused_before_rows_are_written(root: str) -> None:
    writer = begin(root, batch=0)
    with pytest.raises(BadOption):
        run_task(writer, 0, 10, 1)
    assert Store(root).walk("shuffle") == []


def test_a_query_that_was_asked_to_end_does_not_commit(root: str) -> None:
    writer = begin(root)
    message = run_task(writer, 0, 10, 1)
    request_cancel(Store(root), 7, "too slow", who="ann")
    with pytest.raises(Canceled):
        writer.commit([message])
    writer.abort([message])
    assert outcome_on(root).outcome is Outcome.CANCELED


def test_an_abort_ends_the_query_and_counts_its_finished_tasks(root: str) -> None:
    writer = begin(root)
    writer.abort([run_task(writer, 0, 10, 1), None, None])
    ended = outcome_on(root)
    assert ended.outcome is Outcome.ABORTED
    assert ended.message == "Spark aborted the write; 1 of 3 tasks had finished"


def test_an_abort_after_the_commit_shows_its_rows_and_says_so(root: str) -> None:
    writer = begin(root)
    message = run_task(writer, 0, 10, 1)
    writer.commit([message])
    with pytest.raises(AlreadyCommitted):
        writer.abort([message])
    assert keys_of(root) == [1]


@pytest.mark.parametrize("error", [AlreadyCommitted("first"), CommittedUnconfirmed("later")])
def test_committed_rows_let_the_job_succeed_with_a_warning(
    error: FfqError, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), committed_is_success():
        raise error
    assert error.code in caplog.text


def test_all_other_errors_fail_the_job() -> None:
    with pytest.raises(StoreFailed), committed_is_success():
        raise StoreFailed("no answer")
