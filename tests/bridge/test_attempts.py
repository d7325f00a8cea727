"""Failures and lost executors: the rows are right, and each attempt has the right state."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ffq_spark.exchange.attempts.task_log import TaskLog, read_logs
from ffq_spark.store import Store

sys.path.insert(0, str(Path(__file__).parent))

from bridge_trouble import checked, eventually_lost, write
from conftest import start_spark

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    session = start_spark("local-cluster[2,1,1024]")
    yield session
    session.stop()


def test_a_failed_task(cluster: Any, root: str, tmp_path: Path) -> None:
    def fail(_: str) -> None:
        raise RuntimeError("on purpose")

    write(cluster, root, fail, tmp_path / "marker")
    checked(root)
    task = eventually_lost(root, "FAILED").task
    assert task is not None and "on purpose" in task.reason and not task.speculative


def test_a_lost_executor(cluster: Any, root: str, tmp_path: Path) -> None:
    def die(_: str) -> None:
        pid = os.getpid()
        while b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_bytes():
            pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        os.kill(pid, signal.SIGKILL)
        time.sleep(120)

    write(cluster, root, die, tmp_path / "marker")
    checked(root)
    task = eventually_lost(root, "LOST").task
    assert task is not None and task.executor
    events = [e for log in _logs(root) for e in log.events if e["event"] == "executor_lost"]
    assert task.executor in {event["executor"] for event in events}


def _logs(root: str) -> list[TaskLog]:
    return list(read_logs(Store(root)).values())
