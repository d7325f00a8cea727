"""If a steward dies or hangs during a write, the driver starts another and keeps its lease."""

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
from test_driver_loss import wait_for_parts

from ffq_spark import Exchange

pytestmark = pytest.mark.spark

# Long enough that Python starts on a busy machine before a third of the lease has passed.
LEASE = 12


def steward_of(app: App) -> int:
    wait_for(lambda: app.stewards, 60, "the steward's start")
    return app.stewards[0]


def test_a_killed_steward_costs_a_write_neither_its_lease_nor_its_log(tmp_path: Path) -> None:
    root, gate = str(tmp_path / "exchange"), tmp_path / "gate"
    exchange = Exchange(root)
    with App(root, gate, lease=LEASE) as app:
        query = wait_for_parts(root, set())
        wait_for(lambda: exchange.status(query)[0].tasks_total == 2, 60, "the log's first piece")
        killed = steward_of(app)
        os.kill(killed, signal.SIGKILL)
        deadline = time.monotonic() + 1.3 * LEASE
        while time.monotonic() < deadline:
            assert exchange.gc(ttl=0).fenced == []
            time.sleep(0.2)
        assert app.stewards not in ([], [killed])
        gate.touch()
        app.wait_printed("committed")
        assert exchange.info().rows == ROWS
        wait_for(lambda: exchange.status(query)[0].tasks_done == 2, 60, "the tasks' ends")
        assert app.log.read_text().count("writes start it again") == 1
        Path(f"{gate}.stop").touch()
        wait_for(lambda: app.process.poll() is not None, 120, "the application's end")
    assert os.listdir(Path(root, "_ffq", "leases")) == []
    assert exchange.status(query)[0].tasks_total == 2


def test_a_steward_that_hangs_is_replaced(tmp_path: Path) -> None:
    root, gate = str(tmp_path / "exchange"), tmp_path / "gate"
    with App(root, gate, lease=3) as app:
        wait_for_parts(root, set())
        stopped = steward_of(app)
        os.kill(stopped, signal.SIGSTOP)
        wait_for(lambda: app.stewards not in ([], [stopped]), 60, "another steward")
        gate.touch()
        app.wait_printed("committed")
        assert app.stewards != [stopped]
