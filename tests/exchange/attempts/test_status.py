"""The status of queries: FFQ's five states, derived from records."""

from __future__ import annotations

import pytest
from conftest import Place
from gc_scene import DAY_MS, Scene

from ffq_spark.errors import QueryNotFound
from ffq_spark.exchange.attempts.status import QueryState
from ffq_spark.exchange.attempts.task_log import write_events
from ffq_spark.exchange.ledger.cancel import end_unfinished
from ffq_spark.format.ids import now_ms
from ffq_spark.format.records import Outcome


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
