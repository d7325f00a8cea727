"""Consumers and holds concurrent with retention: each keeps all steps it needs, or is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from conftest import Place
from faults.fault_storage import Fault, failing
from gc_scene import DAY_MS, Scene
from pyspark.sql.types import LongType, StructField, StructType
from stepping import Files, Process, interleaved, kill_points, open_store

from ffq_spark.errors import FfqError, StepExpired
from ffq_spark.exchange.ledger import consumers
from ffq_spark.exchange.ledger.step_log import StepLog
from ffq_spark.exchange.maintenance.gc import collect_garbage
from ffq_spark.exchange.maintenance.versions import rollback
from ffq_spark.exchange.scan.following import steps_between
from ffq_spark.exchange.scan.snapshot import Snapshot
from ffq_spark.format.ids import now_ms
from ffq_spark.options import ReadOptions
from ffq_spark.spark.stream_reader import ExchangeStreamReader
from ffq_spark.store import Store

SPARK_SCHEMA = StructType([StructField("k", LongType())])


def history(files: Files) -> Scene:
    """Write steps 1 and 2, a rollback to 1 as step 3, and three replaces."""
    scene = Scene(Place("/memory"), open_store(files))
    scene.write()
    scene.write("replace")
    rollback(scene.store, 1)
    for _ in range(3):
        scene.write("replace")
    return scene


def expire(store: Store) -> list[int]:
    return collect_garbage(store, ttl_ms=0, retention_ms=0, now=now_ms() + DAY_MS).expired


def begin(store: Store, options: ReadOptions) -> int:
    return ExchangeStreamReader(store, options, SPARK_SCHEMA).initialOffset()["step"]


def follow(store: Store, start: int, options: ReadOptions) -> None:
    """Plan all parts that a stream from `start` emits; missing data is an error."""
    log = StepLog(store)
    steps = steps_between(log, start, log.last_number(), options)
    exchange = Scene(Place("/memory"), store).ledger.exchange()
    assert exchange is not None
    Snapshot(store, exchange, steps).parts()


@pytest.mark.parametrize("start", ["2", "3"])
def test_a_stream_that_begins_beside_retention_gets_every_step_or_is_refused(start: str) -> None:
    files: Files = {}
    history(files)
    options = ReadOptions(starting_step=start, consumer="new", on_replace="follow")
    granted = set()
    for copy, process in interleaved(files, lambda store: begin(store, options), expire):
        store = open_store(copy)
        granted.add(process.error is None)
        if process.error is None:
            follow(store, process.result, options)
        else:
            assert isinstance(process.error, StepExpired)
            assert consumers.consumers(store) == []
    assert granted == {True, False}


def test_retention_beside_a_stream_that_begins_takes_nothing_from_it() -> None:
    files: Files = {}
    history(files)
    options = ReadOptions(starting_step="2", consumer="new", on_replace="follow")
    granted = set()

    def try_to_begin(store: Store) -> None:
        try:
            begin(store, options)
        except StepExpired:
            assert consumers.consumers(store) == []

    for copy, process in interleaved(files, expire, try_to_begin):
        assert process.error is None
        store = open_store(copy)
        consumer = consumers.find(store, "new")
        granted.add(consumer is not None)
        if consumer is not None:
            follow(store, consumer.step, options)
    assert granted == {True, False}


def test_a_stream_that_skips_replaced_steps_does_not_miss_their_data() -> None:
    files: Files = {}
    scene = history(files)
    consumers.hold(scene.store, "mine", 2)
    assert expire(scene.store) == [1, 3, 4]
    options = ReadOptions(starting_step="2", consumer="new", on_replace="skip")
    assert begin(scene.store, options) == 1
    with pytest.raises(StepExpired, match="step 1"):
        begin(scene.store, ReadOptions(starting_step="2", on_replace="follow"))


def test_a_refused_start_leaves_the_consumer_where_it_was() -> None:
    files: Files = {}
    scene = history(files)
    consumers.record_progress(scene.store, "old", 5)
    options = ReadOptions(starting_step="2", consumer="old", on_replace="follow")
    refused = 0
    for copy, process in interleaved(files, lambda store: begin(store, options), expire):
        consumer = consumers.find(open_store(copy), "old")
        assert consumer is not None and consumer.step == (1 if process.error is None else 5)
        refused += process.error is not None
    assert refused


def test_a_refused_hold_leaves_the_one_of_that_name_in_force() -> None:
    files: Files = {}
    scene = history(files)
    consumers.hold(scene.store, "mine", 4)
    refused = 0
    for copy, process in interleaved(files, lambda s: consumers.hold(s, "mine", 2), expire):
        (hold,) = consumers.holds(open_store(copy))
        assert hold.step == (2 if process.error is None else 4)
        refused += process.error is not None
    assert refused


def test_retention_ends_the_hold_of_a_rollback_that_died() -> None:
    files: Files = {}
    scene = history(files)
    process = Process(files, lambda store: rollback(store, 2))
    process.advance_to("create _ffq/pending")
    process.kill()
    assert len(consumers.holds(scene.store)) == 1
    soon = now_ms() + 1
    assert collect_garbage(scene.store, ttl_ms=0, retention_ms=0, now=soon).expired == [1, 3, 4]
    # A day later, the query of the rollback counts as lost.
    assert expire(scene.store) == [2]
    assert consumers.holds(scene.store) == []


# --- calls that fail -----------------------------------------------------------------------------

Call = Callable[[Store], Any]


def replaced_steps(scene: Scene) -> Scene:
    """Write five steps, each of which replaces the earlier ones."""
    for _ in range(5):
        scene.write("replace")
    return scene


def has_data(files: Files, step: int) -> bool:
    """Return whether the manifest and the parts of a step exist."""
    body = StepLog(open_store(files)).read(step).body
    return body.manifest in files and any(
        path.startswith(f"shuffle/{body.query}/") for path in files
    )


def hold_at(step: int) -> Call:
    return lambda store: consumers.hold(store, "mine", step)


def start_at(step: int) -> Call:
    def start(store: Store) -> None:
        consumers.start_consumer(store, "mine", step, lambda: StepLog(store).refuse_any_expired([]))

    return start


# The call that moves a record of step 1, and the step that either record keeps.
MOVES = {
    "hold": (hold_at(1), hold_at(2), 1, 2),
    "consumer back": (start_at(2), start_at(1), 3, 2),
    "consumer ahead": (start_at(1), start_at(2), 2, 3),
}
moves = pytest.mark.parametrize(("first", "second", "kept", "moved"), MOVES.values(), ids=MOVES)


@moves
@pytest.mark.parametrize("lost", [False, True], ids=["refused", "lost"])
@pytest.mark.parametrize("for_good", [False, True], ids=["once", "for good"])
def test_a_call_that_fails_leaves_the_earlier_record_in_force(
    first: Call, second: Call, kept: int, moved: int, lost: bool, for_good: bool, tmp_path: Path
) -> None:
    for call in itertools.count(1):
        place, fault = Place(str(tmp_path / str(call))), Fault(call, lost, for_good)
        scene = replaced_steps(Scene(place))
        first(scene.store)
        before = scene.exchange.consumers(), scene.exchange.holds()
        error = None
        try:
            second(failing(place, fault))
        except FfqError as failure:
            error = failure
        if error is not None and not for_good:
            assert (scene.exchange.consumers(), scene.exchange.holds()) == before, str(fault)
        expired = expire(scene.store)
        assert (moved if error is None else kept) not in expired, f"{fault} ({fault.subject})"
        if not fault.met:
            assert error is None
            return


@moves
def test_a_call_killed_anywhere_leaves_the_earlier_record_in_force(
    first: Call, second: Call, kept: int, moved: int
) -> None:
    files: Files = {}
    scene = replaced_steps(Scene(Place("/memory"), open_store(files)))
    first(scene.store)
    lost = []
    for copy in kill_points(files, second):
        lost.append(kept in expire(open_store(copy)))
    # Only a call that has done all its work gives the earlier steps up.
    assert not any(lost[:-1])
    assert moved not in expire(open_store(copy))


def test_a_hold_that_moves_beside_retention_keeps_its_steps_or_the_earlier_ones() -> None:
    files: Files = {}
    scene = replaced_steps(Scene(Place("/memory"), open_store(files)))
    consumers.hold(scene.store, "mine", 1)
    granted = set()
    for copy, process in interleaved(files, hold_at(2), expire):
        kept = 2 if process.error is None else 1
        granted.add(kept)
        store = open_store(copy)
        assert has_data(copy, kept)
        assert kept not in expire(store)
        assert [record.earlier for record in consumers.holds(store)] == [()]
    assert granted == {1, 2}


def test_retention_beside_a_hold_that_moves_keeps_its_steps_or_the_earlier_ones() -> None:
    files: Files = {}
    scene = replaced_steps(Scene(Place("/memory"), open_store(files)))
    consumers.hold(scene.store, "mine", 1)

    def try_to_move(store: Store) -> None:
        with suppress(StepExpired):
            consumers.hold(store, "mine", 2)

    granted = set()
    for copy, process in interleaved(files, expire, try_to_move):
        assert process.error is None
        (record,) = consumers.holds(open_store(copy))
        granted.add(record.step)
        assert record.earlier == () and has_data(copy, record.step)
    assert granted == {1, 2}
