"""Exact replays of interleavings of gc and writers that once lost rows or leaked files."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from gc_judge import read_step
from gc_scene import DAY_MS, Scene, rows_of
from stepping import Files, Process, kill_points

from ffq_spark.errors import AlreadyCommitted, Fenced, StepExpired
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.maintenance.deletion import GcReport
from ffq_spark.exchange.maintenance.gc import collect_garbage
from ffq_spark.format import paths
from ffq_spark.format.ids import now_ms
from ffq_spark.format.records import Outcome
from ffq_spark.store import Store


def gc_at(now: int) -> Callable[[Store], GcReport]:
    return lambda store: collect_garbage(store, ttl_ms=0, now=now, retention_ms=0)


def gc_process(files: Files, now: int) -> Process:
    return Process(files, gc_at(now))


def test_a_commit_that_beats_the_fence_is_published_though_its_driver_dies(
    files: Files, scene: Scene
) -> None:
    query = scene.begin()
    output = scene.attempt(query)
    gc_run = gc_process(files, now_ms() + 2 * DAY_MS)
    gc_run.advance_to("create _ffq/queries")
    committer = Process(files, lambda store: Scene(scene.place, store).commit(query, output))
    committer.advance_to("create _ffq/steps")
    assert gc_run.finish().fenced == []
    committer.kill()
    Ledger(scene.store).roll_forward()
    (step,) = scene.ledger.log.read_many(scene.ledger.log.numbers())
    assert read_step(files, 1) == rows_of(step) and step.body.query == query.query


@pytest.mark.parametrize("listing", range(1, 6))
def test_a_query_that_begins_while_gc_lists_is_no_orphan(
    files: Files, scene: Scene, listing: int
) -> None:
    scene.write()
    gc_run = gc_process(files, now_ms() + 1000)
    for _ in range(listing):
        gc_run.advance_to("list")
    query = scene.begin()
    output = scene.attempt(query)
    report = gc_run.finish()
    assert (report.attempts, report.problems) == (0, [])
    step = scene.commit(query, output)
    assert read_step(files, step.step) == rows_of(step)


@pytest.mark.parametrize("operation", range(1, 12))
def test_a_root_that_becomes_an_exchange_under_gc_keeps_the_registered_attempt(
    files: Files, scene: Scene, operation: int
) -> None:
    gc_run = gc_process(files, now_ms() + 1000)
    gc_run.advance(operation)
    step, _ = scene.twins()
    assert gc_run.finish().problems == []
    assert read_step(files, step.step) == rows_of(step)


def test_a_late_second_commit_of_an_expired_step_leaves_it_expired(
    files: Files, scene: Scene
) -> None:
    query = scene.begin()
    outputs = [scene.attempt(query, attempt) for attempt in (1, 2)]
    scene.commit(query, outputs[0])
    for _ in range(2):
        scene.write("replace")
    gc_process(files, now_ms() + DAY_MS).finish()
    with pytest.raises(AlreadyCommitted):
        scene.commit(query, outputs[1])
    with pytest.raises(StepExpired):
        read_step(files, 1)
    gc_process(files, now_ms() + DAY_MS).finish()
    assert paths.manifest(query.query) not in files


def test_the_manifest_of_a_commit_that_came_too_late_goes(files: Files, scene: Scene) -> None:
    query = scene.begin()
    output = scene.attempt(query)
    scene.ledger.end(query.query, Outcome.ABORTED, "")
    with pytest.raises(Fenced):
        scene.commit(query, output)
    assert paths.manifest(query.query) in files
    gc_process(files, now_ms() + DAY_MS).finish()
    assert paths.manifest(query.query) not in files
    assert not any(path.startswith("shuffle/") for path in files)


def leave_garbage(scene: Scene) -> None:
    """Leave a stale attempt, an aborted query, a lost query and replaced versions."""
    scene.twins()
    scene.ended()
    scene.attempt(scene.begin(lease_seconds=1))
    for _ in range(3):
        scene.write("replace")


def test_a_gc_run_that_is_killed_anywhere_has_done_no_harm(files: Files, scene: Scene) -> None:
    leave_garbage(scene)
    now = now_ms() + DAY_MS
    expected = dict(files)
    gc_process(expected, now).finish()
    for copy in kill_points(files, gc_at(now)):
        gc_process(copy, now).finish()
        assert copy.keys() == expected.keys()


def test_two_gc_runs_in_any_of_many_interleavings_do_what_one_does(
    files: Files, scene: Scene
) -> None:
    leave_garbage(scene)
    now = now_ms() + DAY_MS
    expected = dict(files)
    gc_process(expected, now).finish()
    for operations in range(0, 60, 3):
        copy = dict(files)
        first, second = gc_process(copy, now), gc_process(copy, now)
        first.advance(operations)
        second.advance(60 - operations)
        for report in (first.finish(), second.finish()):
            assert report.problems == []
        assert copy.keys() == expected.keys()


def test_outcomes_outlive_everything(files: Files, scene: Scene) -> None:
    """A driver that wakes years later must still find itself fenced."""
    lost = scene.begin(lease_seconds=1)
    output = scene.attempt(lost)
    for years in (1, 10):
        gc_process(files, now_ms() + years * 365 * DAY_MS).finish()
    with pytest.raises(Fenced, match="LOST"):
        scene.commit(lost, output)


def test_a_store_that_fails_half_way_is_reported_and_the_rest_goes(scene: Scene) -> None:
    class Failing(Store):
        def delete_many(self, paths: object) -> None:
            if first in str(paths):
                raise OSError("no")
            super().delete_many(paths)  # type: ignore[arg-type]

    first, second = (str(scene.ended().query) for _ in range(2))
    failing = Failing.__new__(Failing)
    failing.__dict__.update(scene.store.__dict__)
    report = collect_garbage(failing, ttl_ms=0, now=now_ms() + DAY_MS)
    assert len(report.problems) == 1 and first in report.problems[0]
    assert scene.data(int(first)) != set() and scene.data(int(second)) == set()
