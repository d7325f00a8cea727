"""A whole write in one process: it makes one step, or ends its query without a step."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest
from layouts import write_options

from ffq_spark import Exchange
from ffq_spark.errors import BadOption
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.format import paths
from ffq_spark.format.records import Outcome
from ffq_spark.store import Store

OPTIONS = write_options(keys=("k",), partitions=2)


@pytest.fixture
def root() -> str:
    return f"memory://{uuid.uuid4().hex}"


def test_batches_become_one_step(root: str) -> None:
    batches = (pa.record_batch({"k": [number]}) for number in range(5))
    step = write_batches(root, batches, options=OPTIONS)
    assert step is not None and (step.step, step.body.rows) == (1, 5)
    assert sorted(Exchange(root).read().read_all()["k"].to_pylist()) == list(range(5))


def test_no_batches_need_a_schema(root: str) -> None:
    with pytest.raises(BadOption, match="schema"):
        write_batches(root, [], options=OPTIONS)
    step = write_batches(root, [], options=OPTIONS, schema=pa.schema([("k", pa.int64())]))
    assert step is not None and step.body.rows == 0


def test_a_write_that_fails_ends_its_query(root: str) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"k": [1]})
        raise ZeroDivisionError("by 0")

    with pytest.raises(ZeroDivisionError):
        write_batches(root, rows(), options=write_options(keys=("k",), partitions=2, query=7))
    outcome = Ledger(Store(root)).outcome(7)
    assert outcome is not None
    assert (outcome.outcome, outcome.message) == (Outcome.ABORTED, "ZeroDivisionError: by 0")


def test_a_write_that_is_refused_begins_no_query(root: str) -> None:
    with pytest.raises(BadOption):
        write_batches(root, [pa.record_batch({"k": [1]})], options=write_options(batch=3))
    assert Store(root).list(paths.QUERIES) == []


def test_a_batch_of_a_stream_is_written_once(root: str) -> None:
    options = write_options(keys=("k",), partitions=2, stream_id="s", batch=0)
    batch = pa.record_batch({"k": [1]})
    steps = [write_batches(root, [batch], options=options) for _ in range(2)]
    assert [step and step.step for step in steps] == [1, None]
