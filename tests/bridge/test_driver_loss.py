"""Drivers that die or sleep during a write, and the gc run that follows."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from bridge_app import ROWS
from bridge_processes import App, wait_for

from ffq_spark import Exchange

pytestmark = pytest.mark.spark

LEASE = 6


def files_of(root: str, query: int) -> list[Path]:
    return [p for p in Path(root, "shuffle", str(query)).rglob("*") if p.is_file()]


def wait_for_parts(root: str, known: set[int]) -> int:
    """Wait until a query outside `known` has a complete attempt, and return the query's number."""

    def new() -> list[int]:
        indexes = Path(root, "shuffle").glob("*/*/*/*/index.bin")
        return [q for path in indexes if (q := int(path.relative_to(root).parts[1])) not in known]

    wait_for(new, 300, "a complete attempt")
    return new()[0]


def test_a_killed_driver_leaves_bytes_that_gc_removes_and_nothing_else(tmp_path: Path) -> None:
    root = str(tmp_path / "exchange")
    exchange = Exchange(root)
    with App(root, tmp_path / "other", "appends", lease=LEASE) as other:
        other.wait_printed("appended")
        known = {status.query for status in exchange.status()}
        with App(root, tmp_path / "gate", lease=LEASE) as killed:
            killed.wait_printed("started")

            def of_the_killed() -> list[int]:
                own = [s.query for s in exchange.status() if s.tasks_total == 2]
                return [q for q in own if q not in known and files_of(root, q)]

            wait_for(of_the_killed, 300, "a part of the driver that will be killed")
            (query,) = of_the_killed()
            killed.signal_driver(signal.SIGKILL)
            wait_for(lambda: not killed.stewards, 15, "the steward's end")
        appended = other.times_printed("appended")
        wait_for(lambda: exchange.check().get(query) == "lease gone", LEASE * 4, "the lease's end")
        report = exchange.gc(ttl=0)
        assert report.fenced == [query] and report.problems == []
        assert files_of(root, query) == []
        other.wait_printed("appended", appended + 2)
        Path(other.gate.with_name("other.stop")).touch()
        wait_for(lambda: other.process.poll() is not None, 120, "the other's end")
        steps = other.times_printed("appended")
    info = exchange.info()
    assert (info.step, info.rows) == (steps, 10 * steps)
    assert exchange.verify(steps="all").ok
    states = {a.state for a in exchange.attempts()}
    assert states <= {"registered", "absent"}


def test_a_driver_that_slept_past_its_lease_is_refused(tmp_path: Path) -> None:
    root, gate = str(tmp_path / "exchange"), tmp_path / "gate"
    exchange = Exchange(root)
    with App(root, gate, lease=LEASE) as app:
        query = wait_for_parts(root, set())
        app.signal_driver(signal.SIGSTOP)
        wait_for(lambda: exchange.check().get(query) == "lease gone", LEASE * 5, "the lease's end")
        assert exchange.gc(ttl=0).fenced == [query]
        gate.touch()
        app.signal_driver(signal.SIGCONT)
        wait_for(lambda: app.process.poll() is not None, 120, "the application's end")
        assert app.process.returncode != 0
        assert "FFQ_FENCED" in app.log.read_text()
    assert not Path(root, "_ffq", "exchange.json").exists() or exchange.info().rows == 0
    (status,) = exchange.status()
    assert status.state.name == "FAILED"
    exchange.gc(ttl=0)
    assert files_of(root, query) == []


def test_the_lease_lasts_as_long_as_the_write(tmp_path: Path) -> None:
    root, gate = str(tmp_path / "exchange"), tmp_path / "gate"
    exchange = Exchange(root)
    with App(root, gate, lease=LEASE) as app:
        query = wait_for_parts(root, set())
        deadline = time.monotonic() + 3 * LEASE
        while time.monotonic() < deadline:
            assert query not in exchange.check()
            assert exchange.gc(ttl=0).fenced == []
            time.sleep(0.2)
        assert exchange.status(query)[0].state.name == "RUNNING"
        gate.touch()
        app.wait_printed("committed")
        assert exchange.info().rows == ROWS
        Path(f"{gate}.stop").touch()
        wait_for(lambda: app.process.poll() is not None, 120, "the application's end")
    assert os.listdir(Path(root, "_ffq", "leases")) == []
