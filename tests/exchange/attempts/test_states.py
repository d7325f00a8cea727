"""The states of attempts: storage decides them, and Spark's scheduler adds its view."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import ffq_reference as ffq
import pyarrow as pa
import pytest
from conftest import Place
from gc_scene import Scene
from task_events import APP, ended

from ffq_spark import Exchange
from ffq_spark.errors import CorruptIndex
from ffq_spark.exchange.attempts.resolution import Resolved
from ffq_spark.exchange.attempts.task_log import write_events
from ffq_spark.exchange.ledger.claims import Claim, claim_state
from ffq_spark.exchange.ledger.sealing import seal
from ffq_spark.format import paths
from ffq_spark.format.ids import now_ms
from ffq_spark.format.records import Outcome, OutcomeRecord


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


@pytest.mark.parametrize("damaged", [None, 1, 9, 10])
def test_in_a_root_of_ffq_the_latest_attempt_is_the_one_that_a_read_returns(
    tmp_path: Path, damaged: int | None
) -> None:
    """Attempt 11 has no index. A damaged index matters if no larger attempt is complete."""
    for attempt in (1, 9, 10, 11):
        rows = {0: [pa.record_batch({"k": [attempt]})]}
        ffq.write_v1(tmp_path, (7, 0, 0, attempt), rows, index=attempt != 11)
    if damaged is not None:
        Path(tmp_path, f"shuffle/7/0/0/{damaged}/index.bin").write_bytes(b"FFQI")
    exchange = Exchange(str(tmp_path))
    states = {state.attempt: state for state in exchange.attempts()}
    complete = [number for number, state in states.items() if state.complete]
    assert complete == [number for number in (1, 9, 10) if number != damaged]
    latest = [number for number, state in states.items() if state.state == "latest"]
    assert all(states[n].state == "stale" for n in states if n not in latest)
    if damaged == 10:
        assert latest == []
        with pytest.raises(CorruptIndex):
            exchange.latest_attempt(7, 0, 0)
    else:
        assert latest == [exchange.latest_attempt(7, 0, 0)] == [10]


def test_a_query_that_lost_its_claims_has_no_registered_attempt(place: Place) -> None:
    """Two first writes are committed at once; the exchange is that of the other one."""
    scene = Scene(place)
    record = scene.begin()
    registered, _ = (scene.attempt(record, attempt) for attempt in (1, 2))
    body, manifest = seal(record, [registered], [])
    scene.store.create_once(body.manifest, manifest)
    scene.write()
    exchange, query = scene.exchange, record.query
    founded = scene.ledger.exchange()
    assert founded is not None
    lost = replace(founded, partitions=4)
    outcome = OutcomeRecord(query, Outcome.COMMITTED, now_ms(), "nonce", step=body, exchange=lost)
    assert scene.store.create_once(paths.outcome(query), outcome.encode())
    assert claim_state(scene.store, outcome) is Claim.LOST
    assert [s.state for s in exchange.attempts(query)] == ["stale", "stale"]
    why = "largest complete attempt; no step names one"
    assert exchange.resolve(query) == {0: Resolved(2, why)}
    assert exchange.latest_attempt(query, 0, 0) == 2
    assert set(exchange.read(query=query).read_all()["attempt"].to_pylist()) == {2}
    assert exchange.fetch(query, 0, 0) == exchange.fetch(query, 0, 0, attempt=2)
