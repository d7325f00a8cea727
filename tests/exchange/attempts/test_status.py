"""The status of queries: FFQ's five states, derived from records."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from conftest import Place
from faults.fault_storage import Fault, failing
from gc_scene import DAY_MS, OPTIONS, SCHEMA, Scene, rows_of
from layouts import write_options

from ffq_spark.errors import CommitUnknown, DuplicateBatch, ExchangeMismatch, QueryNotFound
from ffq_spark.exchange.attempts.status import QueryState, QueryStatus, query_status
from ffq_spark.exchange.attempts.task_log import write_events
from ffq_spark.exchange.ledger import ledger
from ffq_spark.exchange.ledger.cancel import end_unfinished
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.exchange.write.prepare import prepare
from ffq_spark.format import paths
from ffq_spark.format.ids import now_ms
from ffq_spark.format.records import Outcome, StreamBatch


@pytest.fixture
def scene(place: Place) -> Scene:
    return Scene(place)


def state(scene: Scene, query: int) -> QueryState:
    (status,) = scene.exchange.status(query)
    return status.state


def task(kind: str, number: int, **values: object) -> dict[str, object]:
    """Make an event of the listener about one task of stage 4."""
    common = {"stage": 4, "stage_attempt": 0, "attempt_number": 0, "executor": "0", "host": "h"}
    own = {"event": kind, "task": number, "map_task": number, "speculative": False, "launch_ms": 1}
    return {**common, **own, **values}


def test_the_numbers_are_those_of_ffq() -> None:
    assert {s.name: s.value for s in QueryState} == {
        "QUEUED": 1,
        "RUNNING": 2,
        "SUCCEEDED": 3,
        "FAILED": 4,
        "CANCELED": 5,
    }


def test_a_query_is_queued_until_something_of_it_is_seen(scene: Scene) -> None:
    query = scene.begin()
    assert state(scene, query.query) is QueryState.QUEUED
    scene.attempt(query)
    assert state(scene, query.query) is QueryState.RUNNING


def test_a_task_that_the_listener_saw_is_enough_to_be_running(scene: Scene) -> None:
    query = scene.begin()
    write_events(scene.store, query.initiator, query.query, 1, [task("task_start", 0)])
    assert state(scene, query.query) is QueryState.RUNNING


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Outcome.ABORTED, QueryState.FAILED),
        (Outcome.LOST, QueryState.FAILED),
        (Outcome.CANCELED, QueryState.CANCELED),
    ],
)
def test_an_outcome_decides_and_is_for_ever(
    scene: Scene, outcome: Outcome, expected: QueryState
) -> None:
    query = scene.begin()
    ended = scene.ledger.end(query.query, outcome, "because")
    (before,) = scene.exchange.status(query.query)
    assert (before.state, before.message) == (expected, "because")
    assert (before.started_at_ms, before.ended_at_ms) == (query.created_at_ms, ended.at_ms)
    for other in Outcome:
        scene.ledger.end(query.query, other, "later")
    scene.attempt(query)
    scene.gc(now_ms() + DAY_MS, ttl_ms=0)
    assert scene.exchange.status(query.query) == [before]


def test_a_committed_query_has_succeeded_with_all_its_tasks(scene: Scene) -> None:
    query = scene.begin()
    scene.commit(query, *(scene.attempt(query, 1, map_task) for map_task in range(3)))
    (status,) = scene.exchange.status(query.query)
    assert (status.state, status.message) == (QueryState.SUCCEEDED, "")
    assert (status.tasks_done, status.tasks_total) == (3, 3)
    end_unfinished(scene.store, query.query, "too late")
    assert scene.exchange.status(query.query) == [status]


def test_a_request_to_cancel_shows_until_the_query_ends(scene: Scene) -> None:
    query = scene.begin()
    record = scene.exchange.cancel(query.query, "too slow")
    (status,) = scene.exchange.status(query.query)
    assert status.state is QueryState.QUEUED
    assert record.who in status.message and "too slow" in status.message
    end_unfinished(scene.store, query.query, "")
    (status,) = scene.exchange.status(query.query)
    assert (status.state, status.message) == (QueryState.CANCELED, "too slow")


def test_tasks_are_counted_by_map_task_in_the_stage_that_writes(scene: Scene) -> None:
    query = scene.begin()
    events = [
        {"event": "job_start", "stage": 3, "tasks": 8},
        {"event": "job_start", "stage": 4, "tasks": 5},
        task("task_end", 0, state="SUCCESS"),
        task("task_end", 7, map_task=0, state="SUCCESS"),
        task("task_end", 1, state="FAILED"),
        task("task_end", 2, state="SUCCESS", stage=3),
        task("task_start", 3),
    ]
    write_events(scene.store, query.initiator, query.query, 1, events)
    (status,) = scene.exchange.status(query.query)
    assert (status.tasks_done, status.tasks_total) == (1, 5)


def test_without_a_listener_nobody_counts_tasks(scene: Scene) -> None:
    (status,) = scene.exchange.status(scene.begin().query)
    assert (status.tasks_done, status.tasks_total) == (None, None)


def test_all_queries_are_listed_oldest_first(scene: Scene) -> None:
    committed, aborted, running = scene.write().body.query, scene.ended().query, scene.begin().query
    statuses = scene.exchange.status()
    assert [status.query for status in statuses] == [committed, aborted, running]
    assert [status.state.name for status in statuses] == ["SUCCEEDED", "FAILED", "QUEUED"]
    assert [scene.exchange.status(status.query) for status in statuses] == [[s] for s in statuses]


def test_an_unknown_query_is_not_found(scene: Scene) -> None:
    scene.write()
    with pytest.raises(QueryNotFound, match="12345"):
        scene.exchange.status(12345)


# --- commits that were interrupted after the outcome ---------------------------------------------

BATCH = StreamBatch("nightly", 1, 7, 5, 1, 1)
CLAIMS = {"exchange": (paths.EXCHANGE, None), "batch": (paths.STREAMS, BATCH)}
claims = pytest.mark.parametrize(("refused", "batch"), CLAIMS.values(), ids=CLAIMS)


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "WAITS", (0.0,))


def unclaimed(scene: Scene, refused: str, batch: StreamBatch | None) -> int:
    """Commit a query whose claim storage refuses; return its number."""
    if batch is not None:
        scene.write()
    query = scene.begin()
    output = scene.attempt(query)
    broken = failing(scene.place, Fault(1, for_good=True, only=f"create {refused}"))
    with pytest.raises(CommitUnknown):
        proposal = prepare(scene.store, OPTIONS, SCHEMA)
        ledger.Ledger(broken).commit(query, proposal, [output], batch=batch)
    return query.query


def listed(scene: Scene, query: int) -> QueryStatus:
    return next(status for status in scene.exchange.status() if status.query == query)


def read_only(scene: Scene, query: int) -> QueryStatus:
    return query_status(failing(scene.place, Fault(1, for_good=True, only="create")), query)


def other_first_write(scene: Scene) -> Any:
    options = write_options(keys=("z",), partitions=3)
    return write_batches(
        scene.place.root, [pa.record_batch({"z": [1]})], options=options, store=scene.store
    )


@claims
@pytest.mark.usefixtures("no_waits")
def test_the_status_of_a_query_completes_its_commit(
    scene: Scene, refused: str, batch: StreamBatch | None
) -> None:
    query = unclaimed(scene, refused, batch)
    assert state(scene, query) is QueryState.SUCCEEDED
    assert scene.store.list(paths.PENDING) == []
    assert scene.ledger.log.read(scene.ledger.log.last_number()).body.query == query
    if batch is None:
        with pytest.raises(ExchangeMismatch):
            other_first_write(scene)
    assert state(scene, query) is QueryState.SUCCEEDED
    assert listed(scene, query) == query_status(scene.store, query)


@claims
@pytest.mark.usefixtures("no_waits")
def test_a_committed_query_without_its_claims_has_no_final_state(
    scene: Scene, refused: str, batch: StreamBatch | None
) -> None:
    query = unclaimed(scene, refused, batch)
    for status in (read_only(scene, query), listed(scene, query)):
        assert (status.state, status.ended_at_ms) == (QueryState.RUNNING, None)
        assert "committed, but not published" in status.message


@pytest.mark.usefixtures("no_waits")
def test_a_first_write_whose_exchange_another_claimed_has_failed(scene: Scene) -> None:
    query = unclaimed(scene, *CLAIMS["exchange"])
    scene.store.delete(paths.pending(query))
    assert other_first_write(scene).step == 1
    for status in (*scene.exchange.status(query), listed(scene, query)):
        assert status.state is QueryState.FAILED
        assert "another first write" in status.message


def test_a_batch_that_another_run_claimed_has_failed(scene: Scene) -> None:
    proposal, kept = prepare(scene.store, OPTIONS, SCHEMA), scene.begin()
    step = scene.ledger.commit(kept, proposal, [scene.attempt(kept)], batch=BATCH)
    query = scene.begin()
    with pytest.raises(DuplicateBatch):
        scene.ledger.commit(query, proposal, [scene.attempt(query)], batch=BATCH)
    for status in (*scene.exchange.status(query.query), listed(scene, query.query)):
        assert (status.state, status.message) == (
            QueryState.FAILED,
            "another run of batch 7 came first",
        )
    assert state(scene, kept.query) is QueryState.SUCCEEDED
    assert scene.rows() == rows_of(step)
