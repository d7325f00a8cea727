"""Consumers and holds concurrent with retention: each keeps all steps it needs, or is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import Place
from gc_scene import DAY_MS, Scene
from pyspark.sql.types import LongType, StructField, StructType
from stepping import Files, Process, open_store

from ffq_spark.errors import StepExpired
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


def interleaved(
    files: Files, first: Callable[[Store], Any], second: Callable[[Store], Any]
) -> Iterator[tuple[Files, Process]]:
    """Run all of `second` before each operation of `first`, and after the last one."""
    operations, done = 0, False
    while not done:
        copy = dict(files)
        process = Process(copy, first)
        process.advance(operations)
        done = process.done
        second(open_store(copy))
        while not process.done:
            process.advance(1)
        yield copy, process
        operations += 1


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
