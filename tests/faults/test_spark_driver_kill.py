"""A Spark driver is killed at every change of its commit; readers see its whole step or nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import Place
from fault_rows import (
    Write,
    committed_queries,
    exchange_at,
    markers,
    read_log,
    rows_of,
    store_at,
    visible,
    write,
)

pytestmark = pytest.mark.spark

APPLICATION = Path(__file__).with_name("fault_driver_app.py")
BEFORE, KILLED, NEXT = 1, 100, 200

# Manifest, marker, outcome, step, deletion of the marker. "after" a change is "before" the next.
CHANGES = 5
POINTS = [(change, "before") for change in range(1, CHANGES + 1)]
# A point after the last change, to show that CHANGES is complete.
NEVER = (CHANGES + 1, "before")


def run_driver(root: str, change: int, moment: str) -> int:
    """Run the application and return its exit code."""
    environment = {"PYTHONPATH": str(APPLICATION.parent)}
    done = subprocess.run(
        [sys.executable, str(APPLICATION), root, str(change), moment, str(KILLED)],
        env={**os.environ, **environment},
        capture_output=True,
    )
    if done.returncode not in (0, -signal.SIGKILL):
        raise AssertionError(done.stderr.decode())
    return done.returncode


def check(place: Place) -> bool:
    """Check the next reader and writer; return whether the killed write is visible."""
    store = store_at(place)
    committed = len(committed_queries(store)) == 2
    tags = [BEFORE, KILLED] if committed else [BEFORE]
    assert visible(place) == rows_of(tags)
    assert not markers(store) & committed_queries(store)
    assert write(place, NEXT).step == len(tags) + 1
    assert read_log(place) == [Write(tag, "append") for tag in [*tags, NEXT]]
    assert exchange_at(place).verify().ok
    return committed


def test_a_driver_killed_at_any_change_of_its_commit_leaves_a_whole_step_or_nothing(
    tmp_path: Path,
) -> None:
    points = [*POINTS, NEVER]
    places = [Place(str(tmp_path / f"{moment}-{change}")) for change, moment in points]
    for place in places:
        write(place, BEFORE)
    with ThreadPoolExecutor(2) as two:
        runs = zip(places, points, strict=True)
        ends = list(two.map(lambda run: run_driver(run[0].root, *run[1]), runs))
    assert ends == [*[-signal.SIGKILL] * len(POINTS), 0]
    committed = [check(place) for place in places]
    # The third change creates the outcome, which commits the write.
    assert committed == [change > 3 for change, _ in points]
