"""An attempt is claimed by one writer, and its output is registered once."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pyarrow as pa
import pytest
from layouts import write_options

from ffq_spark.errors import AttemptExists, BadCommit, BadOption
from ffq_spark.exchange.ledger.sealing import AttemptOutput
from ffq_spark.exchange.write import map_outputs
from ffq_spark.exchange.write.attempt_writer import write_attempt
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.exchange.write.prepare import prepare
from ffq_spark.format import paths
from ffq_spark.format.paths import AttemptId
from ffq_spark.format.records import QueryRecord
from ffq_spark.store import Store

OPTIONS = write_options(keys=("k",), partitions=2)
SCHEMA = pa.schema([("k", pa.int64())])


@pytest.fixture
def store() -> Store:
    return Store(f"memory://{uuid.uuid4().hex}")


@pytest.fixture
def job(store: Store) -> WriteJob:
    query = QueryRecord(7, "app-1", 0, "append", 0)
    job = WriteJob.of(prepare(store, OPTIONS, SCHEMA), query, OPTIONS)
    return replace(job, digests=True)


def write(store: Store, job: WriteJob, map_task: int, attempt: int, first: int) -> AttemptOutput:
    rows = pa.record_batch([[first, first + 1]], schema=SCHEMA)
    return write_attempt(store, job, map_task, attempt, [rows])


def test_an_attempt_is_claimed_once(store: Store) -> None:
    id = AttemptId(7, 0, 0, 4)
    assert map_outputs.claim(store, id) == id
    with pytest.raises(AttemptExists, match="attempt 4"):
        map_outputs.claim(store, id)
    assert map_outputs.claim(store, id._replace(attempt=0)).attempt == 5


@pytest.mark.parametrize(
    "id",
    [
        AttemptId(7, 0, map_outputs.MAX_MAP_TASKS, 1),
        AttemptId(7, 0, 0, paths.MAX_ATTEMPT + 1),
    ],
)
def test_numbers_beyond_the_limits_are_refused(store: Store, id: AttemptId) -> None:
    with pytest.raises(BadOption):
        map_outputs.claim(store, id)


def test_an_output_is_registered_once_and_comes_back_as_it_was(store: Store, job: WriteJob) -> None:
    output = write(store, job, 0, 1, 0)
    assert map_outputs.read_output(store, output.id) is None
    for _ in range(2):
        map_outputs.register(store, output)
    registered = map_outputs.read_output(store, output.id)
    assert registered == output and registered.digest.rows == 2
    other = write(store, job, 0, 1, 100)
    with pytest.raises(AttemptExists):
        map_outputs.register(store, other)


def test_the_newest_registered_output_of_each_map_task_counts(store: Store, job: WriteJob) -> None:
    outputs = [write(store, job, task, attempt, 0) for task in (0, 1) for attempt in (1, 2)]
    map_outputs.register(store, outputs[0])
    with pytest.raises(BadCommit, match="map task 1"):
        map_outputs.registered_outputs(store, job, 2)
    for output in outputs[1:3]:
        map_outputs.register(store, output)
    counted = map_outputs.registered_outputs(store, job, 2)
    assert [output.id for output in counted] == [outputs[1].id, outputs[2].id]
    with pytest.raises(BadCommit, match="map task 1"):
        map_outputs.registered_outputs(store, job, 1)


def test_more_map_tasks_than_there_can_be_are_refused(store: Store, job: WriteJob) -> None:
    map_outputs.register(store, write(store, job, 0, 1, 0))
    with pytest.raises(BadCommit, match=r"map task 1 and 999998 more of 1000000"):
        map_outputs.registered_outputs(store, job, map_outputs.MAX_MAP_TASKS)
    with pytest.raises(BadOption, match="at most 1000000 map tasks"):
        map_outputs.registered_outputs(store, job, map_outputs.MAX_MAP_TASKS + 1)


def test_files_of_somebody_else_are_read_in_full(store: Store, job: WriteJob) -> None:
    output = write(store, job, 0, 1, 0)
    assert map_outputs.examine(store, job, output.id).digest == output.digest
