"""spark-submit with conf alone: attempts are recorded and stale data is deleted, without code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from layouts import write_options

from ffq_spark import Exchange
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.format import paths
from ffq_spark.format.records import Outcome, QueryRecord
from ffq_spark.store import Store

pytestmark = pytest.mark.spark

TOP = Path(__file__).parents[2]


def submit(root: str, *flags: str) -> str:
    command = [
        str(Path(sys.executable).with_name("spark-submit")),
        "--master=local[2]",
        "--driver-memory=512m",
        "--properties-file=conf/spark-defaults.conf",
        "--conf=spark.ui.enabled=false",
        *flags,
        "examples/submit.py",
        root,
    ]
    done = subprocess.run(
        command, cwd=TOP, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_conf_file_records_attempts(tmp_path: Path) -> None:
    root = str(tmp_path / "exchange")
    assert "rows 100" in submit(root).splitlines()
    states = Exchange(root).attempts()
    assert [(a.map_task, a.state) for a in states] == [(0, "registered"), (1, "registered")]
    assert [a.task.state for a in states if a.task] == ["SUCCESS", "SUCCESS"]
    (status,) = Exchange(root).status()
    assert (status.state.name, status.tasks_done, status.tasks_total) == ("SUCCEEDED", 2, 2)
    assert status.initiator.startswith("local-")


def test_cleanup_from_conf_removes_the_stale_and_keeps_the_rest(tmp_path: Path) -> None:
    root = str(tmp_path / "exchange")
    submit(root)
    store = Store(root)
    aborted = Ledger(store).begin("append", "somebody")
    leftover = Path(root, "shuffle", str(aborted.query), "0", "0", "1", "part-0.ipc")
    leftover.parent.mkdir(parents=True)
    leftover.write_bytes(os.urandom(1000))
    Ledger(store).end(aborted.query, Outcome.ABORTED, "for the test")
    cleanup = {"enabled": "true", "interval": "1s", "ttl": "0s"}
    flags = [f"--conf=spark.ffq.cleanup.{k}={v}" for k, v in cleanup.items()]
    submit(root, "--conf=spark.ffq.lease.seconds=3", *flags)
    assert not leftover.exists()
    assert Exchange(root).verify(steps="all").ok and Exchange(root).info().rows == 20_000


def test_without_the_plugin_all_else_works(tmp_path: Path) -> None:
    root = str(tmp_path / "exchange")
    submit(root, "--conf=spark.plugins=", "--conf=spark.sql.extensions=")
    assert [a.task for a in Exchange(root).attempts()] == [None, None]
    assert Exchange(root).info().rows == 10_000
    write_batches(root, Exchange(root).read(), options=write_options())
    assert Exchange(root).info().rows == 20_000


def test_the_extension_alone_promises_no_lease(tmp_path: Path) -> None:
    """Nothing renews a lease, so gc would take a write for lost once its lease has lapsed."""
    root = str(tmp_path / "exchange")
    submit(root, "--conf=spark.plugins=")
    store = Store(root)
    (status,) = Exchange(root).status()
    assert status.initiator.startswith("local-")
    path = paths.query(status.query)
    assert QueryRecord.decode(store.read(path), path).lease_seconds == 0
    assert store.list(paths.LEASES) == []


def test_the_listener_alone_records_attempts(tmp_path: Path) -> None:
    root = str(tmp_path / "exchange")
    submit(root, "--conf=spark.plugins=", "--conf=spark.extraListeners=io.ffq.spark.FfqListener")
    assert [a.task.state for a in Exchange(root).attempts() if a.task] == ["SUCCESS", "SUCCESS"]
