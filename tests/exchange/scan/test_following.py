"""Following the log: the steps that a stream reads, and its batches."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Place
from gc_scene import DAY_MS, Rows, Scene
from hypothesis import given, settings
from hypothesis import strategies as st

from ffq_spark.errors import BadOption, Replaced, StepExpired, StepNotFound
from ffq_spark.exchange.ledger import consumers
from ffq_spark.exchange.ledger.step_log import StepLog
from ffq_spark.exchange.read.serial_read import read_parts
from ffq_spark.exchange.scan.following import next_end, steps_between
from ffq_spark.exchange.scan.snapshot import Snapshot
from ffq_spark.format.ids import now_ms
from ffq_spark.options import ReadOptions
from ffq_spark.store import Store


@pytest.fixture
def scene(root: str) -> Scene:
    return Scene(Place(root))


def history(scene: Scene, modes: str) -> StepLog:
    """Write one step for each letter: `a` appends, `R` replaces."""
    for mode in modes:
        scene.write("replace" if mode == "R" else "append")
    return scene.ledger.log


def portions(log: StepLog, latest: int, start: int = 0, **options: Any) -> list[int]:
    """Return the last step of each batch until the stream has caught up."""
    ends = []
    while start < latest:
        end = next_end(log, start, latest, ReadOptions(**options))
        assert end > start
        ends.append(end)
        start = end
    return ends


def numbers(log: StepLog, start: int, end: int, **options: Any) -> list[int]:
    return [step.step for step in steps_between(log, start, end, ReadOptions(**options))]


def test_portions_are_limited_by_steps_and_by_bytes(scene: Scene) -> None:
    log = history(scene, "aaaaa")
    size = log.read(1).body.bytes
    assert portions(log, 5) == [5]
    assert portions(log, 5, max_steps_per_trigger=2) == [2, 4, 5]
    assert portions(log, 5, max_bytes_per_trigger=2 * size) == [2, 4, 5]
    assert portions(log, 5, max_bytes_per_trigger=1) == [1, 2, 3, 4, 5]
    assert portions(log, 5, max_bytes_per_trigger=3 * size, max_steps_per_trigger=2) == [2, 4, 5]


def test_the_beginning_is_a_snapshot(scene: Scene) -> None:
    """Steps that were replaced before the first batch are not emitted, even in small batches."""
    log = history(scene, "aaRaRaa")
    assert portions(log, 7, max_steps_per_trigger=1) == [5, 6, 7]
    assert numbers(log, 0, 5) == [5]
    assert numbers(log, 0, 7) == [5, 6, 7]
    # A batch that was planned before a replace stays the same when it is run again.
    assert numbers(log, 0, 4) == [3, 4]
    assert numbers(log, 0, 2) == [1, 2]


def test_a_replace_on_the_way_fails_is_followed_or_skipped(scene: Scene) -> None:
    log = history(scene, "aaRa")
    with pytest.raises(Replaced, match="step 3") as caught:
        numbers(log, 1, 4)
    assert "onReplace" in str(caught.value)
    assert numbers(log, 1, 4, on_replace="follow") == [2, 3, 4]
    assert numbers(log, 1, 4, on_replace="skip") == [2, 4]
    assert numbers(log, 2, 4, starting_step="3") == [3, 4]
    assert numbers(log, 3, 4) == [4]
    assert numbers(log, 4, 4) == numbers(log, 5, 4) == []


@settings(max_examples=40)
@given(st.text("aR", min_size=1, max_size=12), st.integers(0, 5), st.data())
def test_every_step_comes_once_whatever_the_portions(modes: str, most: int, data: Any) -> None:
    """A stream reads the snapshot at its start, and then every step."""
    scene = Scene(Place(f"memory://follow-{now_ms()}-{id(data)}"))
    log = history(scene, modes)
    latest = len(modes)
    first = data.draw(st.integers(1, latest))
    snapshot = [step.step for step in log.visible(first)]
    seen, start = [], 0
    for newest in [first, *range(first + 1, latest + 1)]:
        for end in portions(log, newest, start, max_steps_per_trigger=most):
            seen += numbers(log, start, end, on_replace="skip")
            start = end
    later = [step for step in range(first + 1, latest + 1) if modes[step - 1] == "a"]
    assert seen == snapshot + later


def test_retention_passes_neither_a_consumer_nor_a_hold(scene: Scene) -> None:
    log = history(scene, "aRaRaRaRa")
    consumers.record_progress(scene.store, "slow", 3)

    def expire() -> list[int]:
        return scene.gc(now_ms() + DAY_MS, retention_ms=0).expired

    assert expire() == [1, 2, 3]
    assert numbers(log, 3, 4, on_replace="follow") == [4]
    consumers.record_progress(scene.store, "slow", 9)
    scene.exchange.hold(5, "audit")
    assert expire() == []
    assert sum(scene.rows(as_of_step=5).values()) == 10
    with pytest.raises(StepExpired):
        scene.exchange.hold(3, "too-late")
    assert [hold.name for hold in scene.exchange.holds()] == ["audit"]
    scene.exchange.release("audit")
    assert expire() == [4, 5]
    with pytest.raises(StepNotFound):
        scene.exchange.hold(10, "early")
    with pytest.raises(BadOption):
        scene.exchange.hold(9, "../steps")


def follow(scene: Scene, start: int) -> Rows:
    """Read all steps after `start` as a stream with onReplace=follow does."""
    log = scene.ledger.log
    steps = steps_between(log, start, log.last_number(), ReadOptions(on_replace="follow"))
    exchange = scene.ledger.exchange()
    assert exchange is not None
    parts = Snapshot(scene.store, exchange, steps).parts()
    batches = read_parts(scene.store, parts, exchange.schema)
    return Rows(tuple(row.values()) for batch in batches for row in batch.to_pylist())


@pytest.mark.parametrize(
    ("restores", "expired"),
    [
        pytest.param([1], [2], id="rollback"),
        pytest.param([1, 3], [2], id="rollback to a rollback"),
        pytest.param([2, 1, 4], [], id="several"),
    ],
)
def test_retention_keeps_what_an_unread_rollback_restores(
    scene: Scene, restores: list[int], expired: list[int]
) -> None:
    history(scene, "aR")
    for step in restores:
        scene.exchange.rollback(step)
    consumers.record_progress(scene.store, "slow", 2)
    history(scene, "RRR")
    before = follow(scene, 2)
    assert scene.gc(now_ms() + DAY_MS, retention_ms=0).expired == expired
    assert follow(scene, 2) == before


def test_retention_keeps_what_a_held_rollback_restores(scene: Scene) -> None:
    history(scene, "aRa")
    scene.exchange.rollback(1)
    history(scene, "aRRR")
    before = scene.rows(as_of_step=5)
    scene.exchange.hold(5, "audit")
    assert scene.gc(now_ms() + DAY_MS, retention_ms=0).expired == [2, 3, 6]
    assert scene.rows(as_of_step=5) == before


def test_a_consumer_that_is_forgotten_holds_nothing(scene: Scene) -> None:
    history(scene, "RRRR")
    consumers.record_progress(scene.store, "gone", 0)
    assert scene.gc(now_ms() + DAY_MS, retention_ms=0).expired == []
    assert [(c.consumer, c.step) for c in scene.exchange.consumers()] == [("gone", 0)]
    scene.exchange.forget("gone")
    assert scene.gc(now_ms() + DAY_MS, retention_ms=0).expired == [1, 2]


def test_a_hold_that_comes_while_steps_expire_is_seen_or_refused(root: str) -> None:
    """A hold that was granted is never broken, for any order of hold and expiry."""
    for moment in range(1, 60):
        scene = Scene(Place(f"{root}-{moment}"))
        history(scene, "aRaRaRa")
        done: list[Any] = []

        class Interrupted(Store):
            changes = 0

            def _meet(self, moment: int = moment, scene: Scene = scene, done: Any = done) -> None:
                self.changes += 1
                if self.changes == moment:
                    try:
                        done.append(scene.exchange.hold(3, "mine"))
                    except StepExpired as error:
                        done.append(error)

            def create_once(self, path: str, data: bytes) -> bool:
                self._meet()
                return super().create_once(path, data)

            def delete_many(self, paths: Any) -> None:
                self._meet()
                super().delete_many(paths)

        Scene(Place(scene.place.root), Interrupted(scene.place.root)).gc(
            now_ms() + DAY_MS, retention_ms=0
        )
        if done and not isinstance(done[0], StepExpired):
            assert sum(scene.rows(as_of_step=3).values()) == 10
        if not done:
            assert moment > 5
            return
    raise AssertionError("gc never came to its end")
