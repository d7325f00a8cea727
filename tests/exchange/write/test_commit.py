"""A repeated commit returns the same result: a step, or None.

The rules of streams are tested in test_stream_write, failing storage in tests/faults.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pyarrow as pa
import pytest
from layouts import write_options

from ffq_spark.errors import ReplayMismatch
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.write.attempt_writer import write_attempt
from ffq_spark.exchange.write.commit import commit_write, repeat_answer
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.exchange.write.prepare import prepare
from ffq_spark.exchange.write.stream_write import Delivery
from ffq_spark.format.records import Outcome, OutcomeRecord, StepRecord
from ffq_spark.store import Store

OPTIONS = write_options(keys=("k",), partitions=2, stream_id="s")
Write = Callable[..., tuple[StepRecord | None, OutcomeRecord]]


@pytest.fixture
def store() -> Store:
    return Store(f"memory://{uuid.uuid4().hex}")


@pytest.fixture
def write(store: Store) -> Write:
    def run(
        first: int, delivery: Delivery | None = None
    ) -> tuple[StepRecord | None, OutcomeRecord]:
        batch = pa.record_batch({"k": [first, first + 1]})
        query = Ledger(store).begin("append", "app-1")
        job = WriteJob.of(prepare(store, OPTIONS, batch.schema), query, OPTIONS)
        step = commit_write(store, job, [write_attempt(store, job, 0, 1, [batch])], delivery)
        outcome = Ledger(store).outcome(query.query)
        assert outcome is not None
        return step, outcome

    return run


@pytest.mark.parametrize("delivery", [None, Delivery("s", "a", 0)], ids=["plain", "stream"])
def test_a_step_is_the_answer_to_every_repeated_commit(
    store: Store, write: Write, delivery: Delivery | None
) -> None:
    step, outcome = write(0, delivery)
    assert step is not None and step.body.rows == 2
    assert [repeat_answer(store, outcome, delivery) for _ in range(2)] == [step, step]


def test_a_discarded_batch_has_no_step_however_often_it_is_asked(
    store: Store, write: Write
) -> None:
    delivery = Delivery("s", "a", 0)
    write(0, delivery)
    step, outcome = write(0, delivery)
    assert (step, outcome.outcome) == (None, Outcome.ABORTED)
    assert repeat_answer(store, outcome, delivery) is None


def test_other_rows_are_an_error_again_unless_they_may_differ(store: Store, write: Write) -> None:
    write(0, Delivery("s", "a", 0))
    step, outcome = write(10, Delivery("s", "a", 0, on_mismatch="warn"))
    assert (step, outcome.code) == (None, ReplayMismatch.code)
    for on_mismatch in ("warn", "ignore"):
        delivery = Delivery("s", "a", 0, on_mismatch=on_mismatch)
        assert repeat_answer(store, outcome, delivery) is None
    with pytest.raises(ReplayMismatch):
        repeat_answer(store, outcome, Delivery("s", "a", 0))


def test_a_query_that_was_aborted_has_no_step(store: Store) -> None:
    query = Ledger(store).begin("append", "app-1").query
    outcome = Ledger(store).end(query, Outcome.ABORTED, "given up")
    assert repeat_answer(store, outcome, None) is None
