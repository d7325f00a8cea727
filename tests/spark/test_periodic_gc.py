"""Garbage collection at intervals in the steward's process, without a Spark session."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from ffq_spark.errors import StoreFailed
from ffq_spark.exchange.maintenance.deletion import GcReport
from ffq_spark.spark import periodic_gc as module
from ffq_spark.spark.periodic_gc import PeriodicGc
from ffq_spark.store import Store


class Runs:
    """A replacement for gc that records its calls, and that a test can block."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.may_finish = threading.Event()
        self.may_finish.set()
        self.failing = ""
        self.error: Exception = StoreFailed("storage is away")

    def collect(self, store: Store, ttl_ms: int) -> GcReport:
        self.calls.append((store.root, ttl_ms))
        assert self.may_finish.wait(60)
        if store.root == self.failing:
            raise self.error
        return GcReport(dry_run=False)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    runs = Runs()
    monkeypatch.setattr(module, "collect_garbage", runs.collect)
    return runs


@pytest.fixture
def stores(tmp_path: Path) -> list[Store]:
    return [Store(str(tmp_path / name)) for name in ("one", "two")]


def finish(gc: PeriodicGc) -> None:
    thread: Any = gc._thread
    thread.join(60)
    assert not thread.is_alive()


def test_a_run_covers_all_roots(runs: Runs, stores: list[Store]) -> None:
    gc = PeriodicGc(600, ttl_ms=5)
    gc.run_if_due(stores)
    finish(gc)
    assert runs.calls == [(store.root, 5) for store in stores]


def test_the_next_run_waits_for_the_interval(runs: Runs, stores: list[Store]) -> None:
    gc = PeriodicGc(600, ttl_ms=5)
    for _ in range(3):
        gc.run_if_due(stores[:1])
        finish(gc)
    assert len(runs.calls) == 1
    soon = PeriodicGc(0, ttl_ms=5)
    for _ in range(3):
        soon.run_if_due(stores[:1])
        finish(soon)
    assert len(runs.calls) == 4


def test_two_runs_do_not_overlap(runs: Runs, stores: list[Store]) -> None:
    runs.may_finish.clear()
    gc = PeriodicGc(0, ttl_ms=5)
    for _ in range(3):
        gc.run_if_due(stores[:1])
    runs.may_finish.set()
    finish(gc)
    assert len(runs.calls) == 1


@pytest.mark.parametrize("error", [StoreFailed("storage is away"), KeyError("storage is away")])
def test_one_failing_root_does_not_stop_the_others(
    runs: Runs, stores: list[Store], caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    runs.failing, runs.error = stores[0].root, error
    gc = PeriodicGc(600, ttl_ms=5)
    gc.run_if_due(stores)
    finish(gc)
    assert [root for root, _ in runs.calls] == [store.root for store in stores]
    assert "storage is away" in caplog.text
