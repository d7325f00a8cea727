"""No process that a driver started survives the driver, however the driver ends."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from bridge_processes import App, wait_for

pytestmark = pytest.mark.spark


def gone(app: App) -> None:
    wait_for(lambda: not app.pids(), 20, f"the end of {app.pids()}")


def test_stop_leaves_no_process(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    with App(str(tmp_path / "exchange"), gate) as app:
        app.wait_printed("committed")
        assert app.stewards
        Path(f"{gate}.stop").touch()
        app.process.wait(60)
        gone(app)


def test_a_killed_driver_leaves_no_process(tmp_path: Path) -> None:
    with App(str(tmp_path / "exchange"), tmp_path / "gate") as app:
        wait_for(lambda: app.stewards, 300, "the steward's start")
        app.signal_driver(signal.SIGKILL)
        gone(app)


def test_ctrl_c_leaves_no_process(tmp_path: Path) -> None:
    with App(str(tmp_path / "exchange"), tmp_path / "gate") as app:
        wait_for(lambda: app.stewards, 300, "the steward's start")
        os.killpg(app.process.pid, signal.SIGINT)
        gone(app)


def test_without_a_write_there_is_no_steward(tmp_path: Path) -> None:
    script = tmp_path / "idle.py"
    script.write_text(
        "import time, ffq_spark as ffq\n"
        "from pyspark.sql import SparkSession\n"
        "spark = ffq.configure(SparkSession.builder.master('local[1]')).getOrCreate()\n"
        "assert spark.range(10).count() == 10\n"
        "print('committed', flush=True)\n"
        "time.sleep(60)\n"
    )
    with App("", tmp_path / "gate", command=[sys.executable, str(script)]) as app:
        app.wait_printed("committed")
        assert app.pids("SparkSubmit") and not app.stewards
