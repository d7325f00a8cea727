"""Recheck times: gc checks an old query without stale attempts again only at twice its age."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from conftest import Place
from gc_scene import DAY_MS, OPTIONS, SCHEMA, Scene, rows_of

from ffq_spark.exchange.maintenance.recheck import ALWAYS_CHECKED_MS
from ffq_spark.exchange.write.prepare import prepare
from ffq_spark.format import paths
from ffq_spark.format.ids import now_ms
from ffq_spark.format.records import StreamBatch
from ffq_spark.store import Directory, Store


class Watched(Store):
    """A store that records which directories are listed."""

    looks: list[str] = []

    def tree(self, path: str, skip: Callable[[str], bool] = lambda _: False) -> Iterator[Directory]:
        self.looks.append(path)
        return super().tree(path, skip)


@pytest.fixture
def scene(root: str) -> Scene:
    return Scene(Place(root), Watched(root))


def looks(scene: Scene, now: int, **options: object) -> list[int]:
    Watched.looks.clear()
    assert scene.gc(now, **options).problems == []
    return [int(path.split("/")[1]) for path in Watched.looks]


def test_an_old_query_is_looked_at_again_when_it_is_twice_as_old(scene: Scene) -> None:
    step, outcome = scene.twins()
    query, at = step.body.query, outcome.at_ms
    for age in (DAY_MS, 2 * DAY_MS, ALWAYS_CHECKED_MS - 1, ALWAYS_CHECKED_MS):
        assert looks(scene, at + age) == [query]
    assert looks(scene, at + 2 * ALWAYS_CHECKED_MS - 1) == []
    assert looks(scene, at + 2 * ALWAYS_CHECKED_MS) == [query]
    assert looks(scene, at + 4 * ALWAYS_CHECKED_MS - 1) == []
    assert looks(scene, at + 4 * ALWAYS_CHECKED_MS) == [query]
    assert scene.rows() == rows_of(step)


def test_a_look_that_removed_something_settles_nothing(scene: Scene) -> None:
    step, outcome = scene.twins()
    assert scene.gc(outcome.at_ms + ALWAYS_CHECKED_MS).attempts == 1
    assert looks(scene, outcome.at_ms + ALWAYS_CHECKED_MS) == [step.body.query]
    assert looks(scene, outcome.at_ms + ALWAYS_CHECKED_MS) == []


def test_what_a_zombie_writes_into_a_settled_query_still_goes(scene: Scene) -> None:
    query = scene.begin()
    step = scene.commit(query, scene.attempt(query))
    at = scene.outcome(query.query).at_ms
    scene.gc(at + ALWAYS_CHECKED_MS)
    scene.attempt(query, 2)
    assert (
        looks(scene, at + ALWAYS_CHECKED_MS + DAY_MS) == [] and scene.data(query.query, 2) != set()
    )
    assert scene.gc(at + 2 * ALWAYS_CHECKED_MS).attempts == 1
    assert scene.data(query.query) == scene.data(query.query, 1) != set()
    assert scene.rows() == rows_of(step)


def test_others_are_looked_at_beside_settled_ones_and_added_to_them(scene: Scene) -> None:
    first = scene.write()
    moment = first.body.committed_at_ms + ALWAYS_CHECKED_MS + DAY_MS
    scene.gc(moment)
    second = scene.write()
    assert looks(scene, moment) == [second.body.query]
    assert looks(scene, moment + DAY_MS) == []


def test_expiry_does_not_care_what_is_settled(scene: Scene) -> None:
    steps = [scene.write("replace") for _ in range(3)]
    moment = now_ms() + ALWAYS_CHECKED_MS
    scene.gc(moment)
    assert scene.gc(moment, retention_ms=0).expired == [1]
    assert scene.data(steps[0].body.query) == set() and scene.rows() == rows_of(steps[2])


@pytest.mark.parametrize("damage", [b"", b"ARROW1", b"{}\n"])
def test_a_damaged_list_only_makes_the_next_look_at_everything(scene: Scene, damage: bytes) -> None:
    query = scene.write().body.query
    moment = now_ms() + ALWAYS_CHECKED_MS
    scene.gc(moment)
    scene.store.replace(paths.RECHECK_TIMES, damage)
    assert looks(scene, moment) == [query]
    assert looks(scene, moment) == []


def test_a_look_by_a_clock_that_was_ahead_is_not_trusted(scene: Scene) -> None:
    query = scene.write().body.query
    scene.gc(now_ms() + 1000 * DAY_MS)
    assert looks(scene, now_ms() + 2 * DAY_MS) == [query]


def test_a_dry_run_writes_nothing_down(scene: Scene) -> None:
    scene.write()
    everything = scene.everything()
    scene.gc(now_ms() + ALWAYS_CHECKED_MS, dry_run=True)
    assert scene.everything() == everything


def test_a_run_of_a_batch_is_not_settled_before_the_batch_is(scene: Scene) -> None:
    class Stopped(BaseException):
        pass

    class NeverClaimed(Store):
        def create_once(self, path: str, data: bytes) -> bool:
            if path.startswith(paths.STREAMS):
                raise Stopped
            return super().create_once(path, data)

    query = scene.begin()
    output = scene.attempt(query)
    dying = Scene(scene.place, NeverClaimed(scene.place.root))
    exchange = prepare(scene.store, OPTIONS, SCHEMA)
    with pytest.raises(Stopped):
        dying.ledger.commit(query, exchange, [output], batch=StreamBatch("s", 1, 0, 5, 0, 0))
    moment = scene.outcome(query.query).at_ms + ALWAYS_CHECKED_MS
    for _ in range(2):
        assert looks(scene, moment) == [query.query]
    scene.ledger.roll_forward()
    assert looks(scene, moment) == [query.query]
    assert looks(scene, moment) == []
