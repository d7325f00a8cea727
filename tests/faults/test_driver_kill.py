"""A writer is killed at every change of storage; readers see its whole step or nothing."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import Place
from fault_crashing import CrashingStore, CrashPoint, Moment
from fault_processes import run
from fault_rows import (
    PARTITIONS,
    Write,
    committed_queries,
    exchange_at,
    markers,
    read_log,
    replay,
    rows_of,
    store_at,
    visible,
    write,
)
from layouts import LAYOUT

from ffq_spark.exchange.scan.snapshot import take_snapshot
from ffq_spark.options import ReadOptions

KILLED = 100
NEXT = 200

# The earlier writes, and the mode of the killed write.
CASES = {
    "first write": ([], "append"),
    "append": ([Write(1, "append"), Write(2, "append")], "append"),
    "replace": ([Write(1, "append"), Write(2, "append")], "replace"),
    "first replace": ([], "replace"),
}


def killed_write(place: Place, mode: str, point: CrashPoint) -> bool:
    """Write in another process that dies at the point; return False if it never got there."""

    def work() -> int:
        store = CrashingStore(place.root, place.storage_options, point)
        return write(place, KILLED, mode, store).step

    return run(work) is None


def check_all_or_nothing(place: Place, before: Sequence[Write], mode: str) -> bool:
    """Check that readers see the whole killed write or nothing; return whether they see it."""
    store = store_at(place)
    committed = len(committed_queries(store)) > len(before)
    log = [*before, Write(KILLED, mode)] if committed else list(before)
    seen = visible(place)
    assert seen == rows_of(replay(log)) or (seen is None and not log)
    assert not markers(store) & committed_queries(store)
    assert visible(place) == seen
    assert write(place, NEXT).step == len(log) + 1
    log.append(Write(NEXT, "append"))
    assert read_log(place) == log
    assert visible(place) == rows_of(replay(log))
    report = exchange_at(place).verify()
    assert report.ok
    assert report.rows == sum(rows_of(replay(log)).values())
    return committed


def sweep(
    new_place: Callable[[], Place],
    case: tuple[Sequence[Write], str],
    moment: Moment,
    stride: int = 1,
) -> list[bool]:
    """Kill a write at its 1st, 2nd, … change, until the write ends before the change."""
    before, mode = case
    outcomes = []
    change = 1
    while True:
        place = new_place()
        for earlier in before:
            write(place, earlier.tag, earlier.mode)
        if not killed_write(place, mode, CrashPoint(change, moment)):
            assert read_log(place) == [*before, Write(KILLED, mode)]
            return outcomes
        outcomes.append(check_all_or_nothing(place, before, mode))
        change += stride


def check_sweep(outcomes: list[bool]) -> None:
    """Check that a write is invisible before one point, and visible from there on."""
    assert outcomes == sorted(outcomes)
    assert set(outcomes) == {False, True}


@pytest.mark.parametrize("moment", ["before", "during", "after"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_writer_killed_at_any_change_leaves_a_whole_step_or_nothing(
    case: tuple[Sequence[Write], str], moment: Moment, new_root: Callable[[], str]
) -> None:
    outcomes = sweep(lambda: Place(new_root()), case, moment)
    check_sweep(outcomes)
    # Query, parts, two indexes, manifest, marker, outcome, step, deletion of the marker.
    assert len(outcomes) >= 8 + (1 if LAYOUT == "packed" else PARTITIONS)


@pytest.mark.parametrize(
    ("case", "moment", "stride"),
    [("first write", "after", 3), ("append", "before", 2), ("replace", "after", 3)],
)
def test_on_s3_too_a_killed_writer_leaves_a_whole_step_or_nothing(
    case: str, moment: Moment, stride: int, s3: Any
) -> None:
    def new_place() -> Place:
        return Place(f"s3://{s3.bucket}/{uuid.uuid4().hex}", s3.storage_options)

    check_sweep(sweep(new_place, CASES[case], moment, stride))


def test_a_reader_killed_while_it_publishes_leaves_that_to_the_next_one(tmp_path: Path) -> None:
    """A reader is killed at each change of its roll forward, and another reader completes it."""
    outcomes = []
    for change in (1, 2):
        for moment in ("before", "during", "after"):
            place = Place(str(tmp_path / f"{change}-{moment}"))
            write(place, 1)
            assert killed_write(place, "append", CrashPoint(".outcome.json", "after"))
            assert markers(store_at(place))
            outcomes.append(killed_reader(place, CrashPoint(change, moment)))
            assert visible(place) == rows_of([1, KILLED])
            assert not markers(store_at(place))
            assert read_log(place) == [Write(1, "append"), Write(KILLED, "append")]
    # A reader makes two changes: it creates the step and deletes the marker.
    assert all(outcomes)
    assert not killed_reader(place, CrashPoint(1, "before"))


def killed_reader(place: Place, point: CrashPoint) -> bool:
    """Read in another process that dies at the point; return False if it never got there."""

    def work() -> int:
        store = CrashingStore(place.root, place.storage_options, point)
        return len(take_snapshot(store, ReadOptions()).steps)

    return run(work) is None
