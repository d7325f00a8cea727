"""The step log finds its newest step, numbers steps without a gap, and publishes a query once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from conftest import Place
from gc_scene import Scene
from hypothesis import given, settings
from hypothesis import strategies as st
from stepping import Files, Process, open_store

from ffq_spark.errors import CorruptRecord, StepNotFound
from ffq_spark.exchange.ledger.step_log import StepLog
from ffq_spark.exchange.scan.snapshot import take_snapshot
from ffq_spark.format import paths
from ffq_spark.format.records import NewestRecord, Outcome, OutcomeRecord
from ffq_spark.options import ReadOptions

pytestmark = pytest.mark.usefixtures("small_checkpoints")


HINTS = (
    st.none()
    | st.integers(-5, 1 << 70).map(lambda number: NewestRecord(number).encode())
    | st.sampled_from([b"", b"{", b"[]", b'{"step": "7"}', b'{"step": null}', b"\xff"])
)


@settings(max_examples=300)
@given(st.integers(0, 1500), st.integers(0, 1500).map(lambda n: NewestRecord(n).encode()) | HINTS)
def test_the_newest_step_is_found_whatever_the_hint_says(last: int, hint: bytes | None) -> None:
    files = {paths.step(number): b"" for number in range(1, last + 1)}
    if hint is not None:
        files[paths.NEWEST] = hint
    assert StepLog(open_store(files)).last_number() == last


@pytest.mark.parametrize("behind", [0, 1, 63, 64, 127, 5_000])
def test_a_hint_saves_the_listing_and_most_of_the_reads(behind: int) -> None:
    files = {paths.step(number): b"" for number in range(1, 10_001)}
    files[paths.NEWEST] = NewestRecord(10_000 - behind).encode()
    operations: list[str] = []
    assert StepLog(open_store(files, operations.append)).last_number() == 10_000
    assert not any(operation.startswith("list") for operation in operations)
    assert len(operations) <= (18 if behind < 64 else 80)


def test_steps_that_come_during_the_search_are_found_or_not_but_none_before_is_missed() -> None:
    def search(files: Files) -> Process:
        return Process(files, lambda store: StepLog(store).last_number())

    seen = set()
    for hint in (8, 60):
        for operations in range(30):
            files = {paths.step(number): b"" for number in range(1, 71)}
            files[paths.NEWEST] = NewestRecord(hint).encode()
            process = search(files)
            process.advance(operations)
            files.update({paths.step(number): b"" for number in range(71, 90)})
            newest = process.finish()
            assert 70 <= newest <= 89
            seen.add(newest)
    assert len(seen) > 1


def test_no_single_record_that_is_lost_ends_the_log() -> None:
    for last in range(2, 90):
        files = {paths.step(number): b"" for number in range(1, last + 1)}
        files[paths.NEWEST] = NewestRecord(1).encode()
        for lost in range(2, last):
            del files[paths.step(lost)]
            assert StepLog(open_store(files)).last_number() == last, f"without {lost}"
            files[paths.step(lost)] = b""


def test_a_record_that_is_lost_is_an_error_to_whoever_needs_it(files: Files, scene: Scene) -> None:
    for _ in range(11):
        scene.write()
    for lost in (9, 10):
        record = files.pop(paths.step(lost))
        with pytest.raises(StepNotFound, match=f"step {lost}"):
            take_snapshot(scene.store, ReadOptions()).parts()
        files[paths.step(lost)] = record
    assert take_snapshot(scene.store, ReadOptions()).parts().num_rows > 0


def test_neither_reading_nor_writing_lists_a_long_log(files: Files, scene: Scene) -> None:
    for _ in range(5):
        scene.write()
    operations: list[str] = []
    store = open_store(files, operations.append)
    take_snapshot(store, ReadOptions()).parts()
    take_snapshot(store, ReadOptions(steps="all"))
    Scene(scene.place, store).write()
    assert operations and f"list {paths.STEPS}" not in operations


def test_a_query_is_published_once_however_often_and_by_whomever(
    files: Files, scene: Scene
) -> None:
    for _ in range(3):
        step = scene.write()
    outcome = scene.outcome(step.body.query)
    before = dict(files)
    assert [StepLog(open_store(files)).publish(outcome) for _ in range(2)] == [step, step]
    assert StepLog(open_store(files)).find(outcome) == step
    assert files == before


def test_publishers_at_once_get_neighbouring_numbers(files: Files, scene: Scene) -> None:
    scene.write()
    for operations in range(12):
        written = [scene.outcome(scene.write().body.query) for _ in range(2)]
        # The outcomes of both queries name the same newest step.
        outcomes = [replace(outcome, after=written[0].after) for outcome in written]
        last = StepLog(scene.store).last_number()
        for number in (last - 1, last):
            del files[paths.step(number)]
        files.pop(paths.NEWEST, None)
        first, second = (
            Process(files, lambda store, outcome=outcome: StepLog(store).publish(outcome))
            for outcome in outcomes
        )
        first.advance(operations)
        numbers = sorted([second.finish().step, first.finish().step])
        assert numbers == [last - 1, last]


def test_an_outcome_without_a_step_cannot_be_published(scene: Scene) -> None:
    with pytest.raises(CorruptRecord, match="without a step"):
        scene.ledger.log.publish(OutcomeRecord(7, Outcome.COMMITTED, 0, "nonce"))


@given(st.lists(st.sampled_from(["append", "replace"]), min_size=1, max_size=9))
@settings(max_examples=25)
def test_a_step_is_visible_with_those_since_the_last_replace(modes: list[str]) -> None:
    scene = Scene(Place("/memory"), open_store({}))
    for mode in modes:
        scene.write(mode)
    for number in range(1, len(modes) + 1):
        replaced = [n for n in range(1, number + 1) if modes[n - 1] == "replace"]
        steps = [step.step for step in scene.ledger.log.visible(number)]
        assert steps == list(range(max(replaced, default=1), number + 1))
