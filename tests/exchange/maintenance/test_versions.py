"""Versions and rollbacks: a rollback shows the whole earlier snapshot and keeps the history."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Place
from faults.fault_storage import Fault, failing
from gc_scene import DAY_MS, Rows, Scene, rows_of
from hypothesis import given, settings
from hypothesis import strategies as st
from stepping import Files, Process, kill_points, open_store

from ffq_spark.errors import CorruptRecord, ExchangeNotFound, StepExpired, StepNotFound
from ffq_spark.exchange.ledger import consumers
from ffq_spark.exchange.maintenance.gc import collect_garbage
from ffq_spark.exchange.maintenance.retention import KEPT_VERSIONS
from ffq_spark.exchange.maintenance.versions import rollback, versions
from ffq_spark.exchange.read.serial_read import read_parts
from ffq_spark.exchange.scan.snapshot import take_snapshot
from ffq_spark.format import paths
from ffq_spark.format.ids import now_ms
from ffq_spark.format.records import StepRecord
from ffq_spark.options import ReadOptions
from ffq_spark.store import Store

pytestmark = pytest.mark.usefixtures("small_checkpoints")


def rows(store: Store, **options: Any) -> Rows:
    snapshot = take_snapshot(store, ReadOptions(**options))
    batches = read_parts(store, snapshot.parts(), snapshot.exchange.schema)
    return Rows(tuple(row.values()) for batch in batches for row in batch.to_pylist())


# --- rollbacks -----------------------------------------------------------------------------------


def test_a_rollback_brings_a_snapshot_back_as_a_new_step(place: Place) -> None:
    scene = Scene(place)
    exchange = scene.exchange
    first, second, third = scene.write(), scene.write(), scene.write("replace")
    step = exchange.rollback(2)
    assert (step.step, step.version, step.base, step.body.restores) == (4, 3, 4, 2)
    assert (step.body.mode, step.body.parts, step.body.rows) == ("replace", 0, 0)
    assert scene.rows() == rows_of(first, second)
    fifth = scene.write()
    assert scene.rows() == rows_of(first, second, fifth)
    assert scene.rows(as_of_step=3) == rows_of(third)
    assert scene.rows(as_of_step=4) == rows_of(first, second)
    assert scene.rows(steps="4") == rows_of()
    assert exchange.steps() == [first, second, third, step, fifth]
    assert exchange.holds() == [] and exchange.verify().ok
    info = exchange.info()
    assert (info.step, info.version, info.steps, info.rows) == (5, 3, 4, 15)


def test_a_rollback_can_be_rolled_back_and_restored(scene: Scene) -> None:
    first, second = scene.write(), scene.write("replace")
    assert rollback(scene.store, 1).step == 3
    assert rows(scene.store) == rows_of(first)
    assert rollback(scene.store, 2).step == 4
    assert rows(scene.store) == rows_of(second)
    assert rollback(scene.store, 3).step == 5
    assert rows(scene.store) == rows_of(first)
    sixth = scene.write()
    assert rollback(scene.store, 6).step == 7
    assert rows(scene.store) == rows_of(first, sixth)
    assert [version.restores for version in versions(scene.store)] == [0, 0, 1, 2, 3, 6]


def test_versions_tell_what_their_readers_see(scene: Scene) -> None:
    first, second, third = scene.write(), scene.write(), scene.write("replace")
    rollback(scene.store, 2)
    last = scene.write()
    listed = versions(scene.store)
    assert [(v.version, v.first_step, v.last_step) for v in listed] == [
        (1, 1, 2),
        (2, 3, 3),
        (3, 4, 5),
    ]
    assert [(v.steps, v.rows, v.restores) for v in listed] == [(2, 10, 0), (1, 5, 0), (4, 15, 2)]
    assert listed[2].bytes == sum(step.body.bytes for step in (first, second, last))
    assert listed[1].committed_at_ms == third.body.committed_at_ms
    assert listed[2].committed_at_ms == last.body.committed_at_ms
    assert not any(version.expired for version in listed)


@pytest.mark.parametrize("step", [0, -1, 3, 99])
def test_a_step_that_does_not_exist_cannot_be_restored(scene: Scene, step: int) -> None:
    scene.write()
    scene.write()
    with pytest.raises(StepNotFound):
        rollback(scene.store, step)
    assert len(scene.store.list(paths.STEPS)) == 2 and consumers.holds(scene.store) == []


def test_where_nothing_was_written_there_is_nothing_to_restore(scene: Scene) -> None:
    with pytest.raises(ExchangeNotFound):
        rollback(scene.store, 1)
    with pytest.raises(ExchangeNotFound):
        versions(scene.store)


def test_an_expired_or_damaged_step_cannot_be_restored(files: Files, scene: Scene) -> None:
    for _ in range(4):
        scene.write("replace")
    scene.gc(now_ms(), retention_ms=0)
    assert [version.expired for version in versions(scene.store)] == [True, True, False, False]
    before = dict(files)
    with pytest.raises(StepExpired):
        rollback(scene.store, 1)
    del files[scene.ledger.log.read(3).body.manifest]
    with pytest.raises(CorruptRecord):
        rollback(scene.store, 3)
    assert {path for path in files if "/steps/" in path} == {p for p in before if "/steps/" in p}


@pytest.mark.parametrize("restores", [2, 3, 99])
def test_a_step_that_restores_itself_or_a_later_one_is_refused(
    files: Files, scene: Scene, restores: int
) -> None:
    scene.write()
    rollback(scene.store, 1)
    path = paths.step(2)
    files[path] = files[path].replace(b'"restores": 1', b'"restores": %d' % restores)
    with pytest.raises(CorruptRecord, match="step 2 restores step"):
        rows(scene.store)


# --- random histories with retention -------------------------------------------------------------


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from(["append", "append", "replace", "rollback", "gc"]), max_size=18),
    st.randoms(),
)
def test_every_version_that_stays_shows_what_it_showed(changes: list[str], random: Any) -> None:
    files: Files = {}
    scene = Scene(Place("/memory"), open_store(files))
    written: dict[int, StepRecord] = {1: scene.write()}
    history, version_of = [[1]], [1]
    readable = {1}
    for change in changes:
        number = len(history) + 1
        if change == "gc":
            collect_garbage(scene.store, ttl_ms=0, retention_ms=0, now=now_ms() + DAY_MS)
            readable = {n for n in readable if version_of[n - 1] > version_of[-1] - KEPT_VERSIONS}
        elif change == "rollback":
            target = random.choice(sorted(readable))
            rollback(scene.store, target)
            history.append(history[target - 1])
            version_of.append(version_of[-1] + 1)
            readable.add(number)
        else:
            written[number] = scene.write(change)
            history.append([number] if change == "replace" else [*history[-1], number])
            version_of.append(version_of[-1] + (change == "replace"))
            readable.add(number)
    assert [v.last_step for v in versions(scene.store)] == [
        max(n for n in range(1, len(history) + 1) if version_of[n - 1] == version)
        for version in range(1, version_of[-1] + 1)
    ]
    for number in sorted(readable):
        expected = rows_of(*(written[n] for n in history[number - 1]))
        assert rows(scene.store, as_of_step=number) == expected
    assert rows(scene.store) == rows_of(*(written[n] for n in history[-1]))
    kept = {n for number in readable for n in history[number - 1]}
    collect_garbage(scene.store, ttl_ms=0, retention_ms=0, now=now_ms() + DAY_MS)
    remaining = {number for number, step in written.items() if step.body.manifest in files}
    newest = {n for n in readable if version_of[n - 1] > version_of[-1] - KEPT_VERSIONS}
    assert {n for number in newest for n in history[number - 1]} <= remaining <= kept


def test_a_version_within_its_retention_keeps_what_it_restores(scene: Scene) -> None:
    first = scene.write()
    scene.write("replace")
    third = rollback(scene.store, 1)
    replaced = scene.write("replace").body.committed_at_ms
    for _ in range(2):
        scene.write("replace")
    assert scene.gc(replaced + 999, retention_ms=1000).expired == [2]
    assert rows(scene.store, as_of_step=third.step) == rows_of(first)
    assert scene.gc(replaced + 1000, retention_ms=1000).expired == [1, 3]


# --- crashes and races ---------------------------------------------------------------------------


def test_a_rollback_killed_anywhere_leaves_both_versions_or_one(files: Files, scene: Scene) -> None:
    first, second = scene.write(), scene.write()
    third = scene.write("replace")
    before, after = rows_of(third), rows_of(first, second)
    seen = []
    for copy in kill_points(files, lambda store: rollback(store, 2)):
        store = open_store(copy)
        current = rows(store)
        seen.append(current == after)
        assert current in (before, after)
        assert rows(store) == current
        assert rows(store, as_of_step=3) == before
        assert len(versions(store)) == (3 if current == after else 2)
        # Nothing that the killed rollback left behind prevents the next one.
        step = rollback(store, 2)
        assert step.step == (5 if current == after else 4)
        assert rows(store) == after
        fourth = Scene(scene.place, store).write()
        assert rows(store) == rows_of(first, second, fourth)
    assert seen == sorted(seen) and set(seen) == {False, True}


def test_a_rollback_killed_anywhere_survives_gc_before_it_is_published(
    files: Files, scene: Scene
) -> None:
    """The rollback's hold keeps the steps that it restores, which gc would otherwise delete."""
    first = scene.write()
    for _ in range(3):
        last = scene.write("replace")
    for copy in kill_points(files, lambda store: rollback(store, 1)):
        store = open_store(copy)
        collect_garbage(store, ttl_ms=0, retention_ms=0, now=now_ms() + 1)
        assert rows(store) in (rows_of(last), rows_of(first))
        assert rows(store) == rows(store)


def test_the_hold_of_a_rollback_that_died_ends_with_the_next(files: Files, scene: Scene) -> None:
    scene.write()
    scene.write("replace")
    process = Process(files, lambda store: rollback(store, 1))
    process.advance_to(f"delete {paths.HOLDS}")
    process.kill()
    consumers.hold(scene.store, "mine", 1)
    assert len(consumers.holds(scene.store)) == 2
    rollback(scene.store, 2)
    assert [hold.name for hold in consumers.holds(scene.store)] == ["mine"]


def test_a_hold_that_cannot_be_deleted_prevents_no_later_rollback(place: Place) -> None:
    scene = Scene(place)
    first, second = scene.write(), scene.write("replace")
    store = failing(place, Fault(1, for_good=True, only="delete"))
    assert [rollback(store, step).step for step in (1, 2, 1, 2)] == [3, 4, 5, 6]
    assert scene.rows() == rows_of(second)
    assert len(scene.exchange.holds()) == 4
    rollback(scene.store, 1)
    assert scene.exchange.holds() == [] and scene.rows() == rows_of(first)


def test_a_hold_stays_while_its_rollback_may_still_be_published(files: Files, scene: Scene) -> None:
    scene.write()
    scene.write("replace")
    slow = Process(files, lambda store: rollback(store, 1))
    slow.advance_to("create _ffq/steps")
    files_without_marker = [path for path in files if path.startswith(paths.PENDING)]
    marker = {path: files.pop(path) for path in files_without_marker}
    rollback(scene.store, 2)
    assert len(consumers.holds(scene.store)) == 1
    files.update(marker)
    assert slow.finish().step == 4
    assert consumers.holds(scene.store) == []


def test_a_rollback_and_appends_at_once_are_one_serial_order(files: Files, scene: Scene) -> None:
    first, second = scene.write(), scene.write("replace")
    for operations in range(0, 60, 3):
        copy = dict(files)
        back = Process(copy, lambda store: rollback(store, 1))
        writer = Process(copy, lambda store: Scene(scene.place, store).write())
        back.advance(operations)
        writer.advance(60 - operations)
        steps = [back.finish(), writer.finish()]
        assert sorted(step.step for step in steps) == [3, 4]
        appended = steps[1]
        kept = (first, appended) if appended.step == 4 else (first,)
        assert rows(open_store(copy)) == rows_of(*kept)
        assert rows(open_store(copy), as_of_step=2) == rows_of(second)


def test_a_gc_run_that_looked_before_a_rollback_takes_nothing_from_it(
    files: Files, scene: Scene
) -> None:
    first = scene.write()
    for _ in range(3):
        scene.write("replace")
    operations = 0
    while True:
        copy = dict(files)
        gc_run = Process(
            copy, lambda s: collect_garbage(s, ttl_ms=0, retention_ms=0, now=now_ms() + 1)
        )
        gc_run.advance(operations)
        done = gc_run.done
        try:
            rollback(open_store(copy), 1)
        except StepExpired:
            expected = None
        else:
            expected = rows_of(first)
        gc_run.finish()
        assert expected is None or rows(open_store(copy)) == expected, f"{operations} operations"
        if done:
            return
        operations += 1
