"""Retention: expired versions lose their data, but keep their steps in the log."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Place
from gc_scene import DAY_MS, TTL_MS, Scene, rows_of

from ffq_spark.errors import CorruptPart, StepExpired
from ffq_spark.format import paths
from ffq_spark.format.ids import now_ms
from ffq_spark.format.records import StepRecord
from ffq_spark.store import Store


@pytest.fixture
def scene(place: Place) -> Scene:
    return Scene(place)


@pytest.fixture
def local(root: str) -> Scene:
    return Scene(Place(root))


def versions(scene: Scene) -> list[StepRecord]:
    """Write four versions of two steps each."""
    steps = []
    for _ in range(4):
        steps += [scene.write("replace"), scene.write()]
    return steps


def test_versions_before_the_newest_two_lose_their_data_and_stay_in_the_log(scene: Scene) -> None:
    steps = versions(scene)
    report = scene.gc(now_ms(), retention_ms=0)
    assert report.expired == [step.step for step in steps[:4]]
    assert scene.exchange.steps() == steps
    kept = {path for step in steps[4:] for path in scene.data(step.body.query)}
    assert scene.data() == kept and len(kept) > 4
    manifests = {entry.name for entry in scene.store.list(paths.MANIFESTS)}
    assert manifests == {f"{step.body.query}.arrow" for step in steps[4:]}


def test_the_visible_version_and_the_one_before_stay_readable(scene: Scene) -> None:
    steps = versions(scene)
    scene.gc(now_ms() + DAY_MS, retention_ms=0)
    assert scene.rows() == rows_of(*steps[6:])
    assert scene.rows(as_of_step=6) == rows_of(*steps[4:6])
    assert scene.exchange.verify().ok


@pytest.mark.parametrize("options", [{"steps": "1"}, {"as_of_step": 2}, {"steps": "all"}])
def test_reading_an_expired_step_says_so(scene: Scene, options: dict[str, Any]) -> None:
    versions(scene)
    scene.gc(now_ms(), retention_ms=0)
    with pytest.raises(StepExpired, match=r"step [12]\b"):
        scene.rows(**options)


def test_the_query_of_an_expired_step_says_so_too(scene: Scene) -> None:
    first = versions(scene)[0]
    query = first.body.query
    assert scene.rows(query=query) == rows_of(first)
    scene.gc(now_ms(), retention_ms=0)
    with pytest.raises(StepExpired):
        scene.rows(query=query)
    with pytest.raises(StepExpired):
        scene.exchange.fetch(query, 0, 0)


def test_a_reader_that_had_planned_before_the_expiry_learns_of_it(scene: Scene) -> None:
    versions(scene)
    reader = scene.exchange.read(steps="1")
    scene.gc(now_ms(), retention_ms=0)
    with pytest.raises(StepExpired):
        reader.read_all()


def test_a_part_that_is_missing_from_a_step_that_has_not_expired_is_damage(local: Scene) -> None:
    steps = versions(local)
    local.gc(now_ms(), retention_ms=0)
    for path in local.data(steps[-1].body.query):
        if path.endswith(".ipc"):
            local.store.delete(path)
    with pytest.raises(CorruptPart, match="missing"):
        local.rows()


def test_the_retention_counts_from_the_replacement_and_ends_on_it(local: Scene) -> None:
    first, second, _ = (local.write("replace") for _ in range(3))
    replaced = second.body.committed_at_ms
    assert local.gc(replaced + TTL_MS - 1, retention_ms=TTL_MS).expired == []
    assert local.rows(steps="1") == rows_of(first)
    assert local.gc(replaced + TTL_MS, retention_ms=TTL_MS).expired == [1]
    assert local.gc(replaced + DAY_MS, retention_ms=TTL_MS).expired == []


def test_without_a_retention_nothing_expires(local: Scene) -> None:
    steps = versions(local)
    local.gc(now_ms() + 1000 * DAY_MS, ttl_ms=0)
    assert local.rows(steps="all") == rows_of(*steps)


def test_attempts_without_rows_leave_nothing_behind(scene: Scene) -> None:
    query = scene.begin("replace")
    scene.commit(query, scene.attempt(query), scene.attempt(query, 2, 1, empty=True))
    assert scene.data(query.query, 2) != set()
    for _ in range(2):
        scene.write("replace")
    scene.gc(now_ms(), retention_ms=0)
    assert scene.data(query.query) == set()


def test_stale_attempts_of_an_expired_step_still_wait_for_the_ttl(scene: Scene) -> None:
    step, outcome = scene.twins()
    for _ in range(2):
        scene.write("replace")
    scene.gc(outcome.at_ms + TTL_MS - 1, retention_ms=0)
    assert scene.data(step.body.query) == scene.data(step.body.query, 2) != set()
    scene.gc(outcome.at_ms + TTL_MS, retention_ms=0)
    assert scene.data(step.body.query) == set()


@pytest.mark.parametrize("survived", range(1, 9))
def test_an_expiry_that_dies_anywhere_is_finished_by_the_next(root: str, survived: int) -> None:
    class Dead(BaseException):
        pass

    class Mortal(Store):
        """Dies before a change, even in the middle of a bulk deletion."""

        changes = survived

        def _change(self) -> None:
            if self.changes == 0:
                raise Dead
            self.changes -= 1

        def create_once(self, path: str, data: bytes) -> bool:
            self._change()
            return super().create_once(path, data)

        def delete_many(self, paths: Any) -> None:
            for path in paths:
                self._change()
                super().delete_many([path])

    scene = Scene(Place(root))
    steps = versions(scene)
    with pytest.raises(Dead):
        Scene(Place(root), Mortal(root)).gc(now_ms(), retention_ms=0)
    for number, step in enumerate(steps[:4], start=1):
        try:
            assert scene.rows(steps=str(number)) == rows_of(step)
        except StepExpired:
            assert scene.store.read_optional(paths.expired(number)) is not None
    scene.gc(now_ms(), retention_ms=0)
    assert {int(path.split("/")[1]) for path in scene.data()} == {s.body.query for s in steps[4:]}
    assert scene.rows() == rows_of(*steps[6:])
