"""The writer of a micro-batch: its tasks and its commit share nothing but messages.

These tests call the writers as Spark does, without a Spark session.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from layouts import write_options
from spark_task import spark_task

from ffq_spark import Exchange
from ffq_spark.errors import BadCommit, Canceled, NoOffsets, ReplayMismatch, StepGap
from ffq_spark.exchange.ledger.cancel import request_cancel
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.exchange.write.prepare import prepare
from ffq_spark.format import paths
from ffq_spark.format.ids import now_ms
from ffq_spark.format.records import Outcome, QueryRecord
from ffq_spark.spark.stream_writer import BatchMessage, ExchangeStreamWriter
from ffq_spark.store import Store

SCHEMA = pa.schema([("k", pa.int64())])
STREAM = "9d777490"
PLANNED_MS = now_ms()


def plan(
    root: str, number: int, spark_checkpoint: Path | None = None, **options: Any
) -> ExchangeStreamWriter:
    """Return a writer whose query has a number; the query begins with its first task."""
    store, chosen = Store(root), write_options(keys=("k",), partitions=2, **options)
    Ledger(store).ensure_format()
    query = QueryRecord(number, "app-1", 0, "append", PLANNED_MS, 0)
    job = WriteJob.of(prepare(store, chosen, SCHEMA), query, chosen)
    location = None if spark_checkpoint is None else str(spark_checkpoint)
    return ExchangeStreamWriter(store, job, chosen, location, {})


def run_task(
    writer: ExchangeStreamWriter, map_task: int, *keys: int, streaming_query: str = STREAM
) -> BatchMessage:
    with spark_task(map_task, 10 + map_task, streaming_query):
        return writer.write(iter([pa.record_batch({"k": list(keys)}, schema=SCHEMA)]))


def deliver(root: str, number: int, batch: int, *keys: int, **options: Any) -> None:
    """Write and commit a batch by one task."""
    messages = [run_task(plan(root, number, **options), 0, *keys)]
    plan(root, number + 1, **options).commit(messages, batch)


def keys_of(root: str) -> list[int]:
    keys: list[int] = Exchange(root).read().read_all()["k"].to_pylist()
    return sorted(keys)


def outcome_on(root: str, number: int) -> Any:
    return Ledger(Store(root)).outcome(number)


def test_the_commit_ends_the_query_of_the_tasks_and_not_its_own(root: str) -> None:
    tasks, commit = plan(root, 7), plan(root, 8)
    commit.commit([run_task(tasks, 0, 1, 2), run_task(tasks, 1, 3)], 0)
    assert keys_of(root) == [1, 2, 3]
    (step,) = Exchange(root).steps()
    assert step.body.query == 7 and step.body.stream is not None
    assert (step.body.stream.stream, step.body.stream.batch) == (STREAM, 0)
    assert Store(root).read_optional(paths.query(8)) is None


def test_a_stream_id_names_the_stream_and_the_streaming_query_owns_it(root: str) -> None:
    deliver(root, 7, 0, 1, stream_id="orders")
    (step,) = Exchange(root).steps()
    assert step.body.stream is not None and step.body.stream.stream == "orders"


@pytest.mark.parametrize("other", ["query", "owner"])
def test_messages_of_two_queries_or_owners_are_refused(root: str, other: str) -> None:
    number, owner = (8, STREAM) if other == "query" else (7, "another query")
    messages = [
        run_task(plan(root, 7), 0, 1),
        run_task(plan(root, number), 1, 2, streaming_query=owner),
    ]
    with pytest.raises(BadCommit, match="batch 0 needs messages of one query"):
        plan(root, 9).commit(messages, 0)  # type: ignore[arg-type]
    assert outcome_on(root, 7) is None


def test_a_task_without_a_message_refuses_the_commit(root: str) -> None:
    message = run_task(plan(root, 7), 0, 1)
    with pytest.raises(BadCommit, match="1 of 2 tasks sent no message"):
        plan(root, 8).commit([message, None], 0)


def test_a_batch_that_runs_again_is_discarded(root: str) -> None:
    deliver(root, 7, 0, 1, 2)
    deliver(root, 17, 0, 1, 2)
    assert keys_of(root) == [1, 2]
    assert outcome_on(root, 17).outcome is Outcome.ABORTED


def test_other_rows_of_a_batch_warn_unless_the_option_refuses_them(
    root: str, caplog: pytest.LogCaptureFixture
) -> None:
    deliver(root, 7, 0, 1)
    with caplog.at_level(logging.WARNING):
        deliver(root, 17, 0, 2)
    assert "FFQ_REPLAY_MISMATCH" in caplog.text
    with pytest.raises(ReplayMismatch):
        deliver(root, 27, 0, 2, on_mismatch="fail")
    assert keys_of(root) == [1]


def test_a_batch_that_leaves_a_gap_is_refused(root: str) -> None:
    deliver(root, 7, 0, 1)
    with pytest.raises(StepGap):
        deliver(root, 17, 2, 3)


def test_a_canceled_query_does_not_commit(root: str) -> None:
    message = run_task(plan(root, 7), 0, 1)
    request_cancel(Store(root), 7, "too slow", who="ann")
    with pytest.raises(Canceled):
        plan(root, 8).commit([message], 0)


# --- offsets ----------------------------------------------------------------------------------


def test_the_offsets_come_from_the_spark_checkpoint(root: str, tmp_path: Path) -> None:
    spark_checkpoint = tmp_path / "checkpoint"
    (spark_checkpoint / "offsets").mkdir(parents=True)
    (spark_checkpoint / "offsets" / "0").write_text('v1\n{"batchWatermarkMs":0}\n{"step":3}')
    deliver(root, 7, 0, 1, spark_checkpoint=spark_checkpoint)
    (step,) = Exchange(root).steps()
    assert step.body.offsets is not None and step.body.offsets.end == ('{"step":3}',)


def test_a_batch_whose_offsets_are_missing_is_committed_with_a_warning(
    root: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        deliver(root, 7, 0, 1)
        assert caplog.text == "", "without a known location there is nothing to warn about"
        deliver(root, 17, 1, 2, spark_checkpoint=tmp_path / "nothing here")
    assert "batch 1 is committed without its offsets" in caplog.text
    assert keys_of(root) == [1, 2]


@pytest.mark.parametrize("known", [False, True])
def test_required_offsets_refuse_a_batch_without_them(
    root: str, tmp_path: Path, known: bool
) -> None:
    spark_checkpoint = tmp_path / "nothing here" if known else None
    with pytest.raises(NoOffsets):
        deliver(root, 7, 0, 1, require_offsets=True, spark_checkpoint=spark_checkpoint)
    assert outcome_on(root, 7) is None


# --- aborts -----------------------------------------------------------------------------------


def test_an_abort_ends_the_queries_of_finished_tasks(root: str) -> None:
    messages = [run_task(plan(root, 7), 0, 1), None, run_task(plan(root, 8), 2, 2)]
    plan(root, 9).abort(messages, 3)
    for number in (7, 8):
        ended = outcome_on(root, number)
        assert ended.outcome is Outcome.ABORTED
        assert ended.message == "Spark aborted batch 3; 2 of 3 tasks had finished"
    assert outcome_on(root, 9) is None
