"""The states of attempts: storage decides them, and Spark's scheduler adds its view."""

from __future__ import annotations

from conftest import Place
from gc_scene import Scene
from task_events import APP, ended

from ffq_spark.exchange.attempts.task_log import write_events


def test_every_attempt_has_its_state_and_what_the_scheduler_saw(place: Place) -> None:
    scene = Scene(place)
    step, _ = scene.twins()
    query = step.body.query
    events = [
        {"event": "job_start", "stage": 4, "tasks": 1},
        ended(0),
        ended(1, "KILLED", reason="another attempt succeeded", speculative=True),
        ended(2, "LOST", reason="executor lost"),
        ended(3, stage=2),
    ]
    write_events(scene.store, APP, query, 1, events)
    pending = scene.begin()
    scene.attempt(pending)
    aborted = scene.ended().query
    scene.store.write("shuffle/7/0/0/1/part-0.ipc", [b"x"])
    states = scene.exchange.attempts()
    assert [(s.query, s.attempt, s.state, s.complete) for s in states] == [
        (7, 1, "orphan", False),
        (query, 1, "registered", True),
        (query, 2, "stale", True),
        (query, 3, "absent", False),
        (pending.query, 1, "pending", True),
        (aborted, 1, "stale", True),
    ]
    tasks = [s.task for s in states if s.query == query]
    assert [t.state for t in tasks if t] == ["SUCCESS", "KILLED", "LOST"]
    assert tasks[1] is not None and tasks[1].speculative
    assert scene.exchange.attempts(query) == states[1:4]


def test_the_log_never_decides(place: Place) -> None:
    scene = Scene(place)
    step, _ = scene.twins()
    query = step.body.query
    write_events(scene.store, APP, query, 1, [ended(0, "FAILED"), ended(1, "SUCCESS")])
    assert scene.exchange.latest_attempt(query, 0, 0) == 1
    assert [s.state for s in scene.exchange.attempts(query)] == ["registered", "stale"]
