"""After a driver is killed between the sinks of a batch, a cut shows all sinks at one batch."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fault_rows import batch_of, rows_of, table_rows
from layouts import write_options

import ffq_spark as ffq
from ffq_spark.exchange.write.local_write import write_batches

pytestmark = pytest.mark.spark

APPLICATION = Path(__file__).with_name("fault_sinks_app.py")
BATCHES = 4


def run(folder: Path) -> int:
    command = [sys.executable, str(APPLICATION), str(folder), "2", "c"]
    return subprocess.run(
        command,
        capture_output=True,
        start_new_session=True,
        check=False,
    ).returncode


def test_a_kill_between_the_second_and_the_third_sink(tmp_path: Path) -> None:
    options = write_options(keys=("k",), partitions=2)
    for tag in range(BATCHES):
        write_batches(str(tmp_path / "source"), [batch_of(tag)], options=options)
    sinks = [ffq.Exchange(str(tmp_path / name)) for name in "abc"]

    assert run(tmp_path) == -signal.SIGKILL
    assert [len(sink.steps()) for sink in sinks] == [3, 3, 2]
    cut = ffq.cut(sinks)
    assert cut.batch == 1
    for reader in cut.read():
        assert table_rows(reader.read_all()) == rows_of(range(2))

    assert run(tmp_path) == 0
    assert [len(sink.steps()) for sink in sinks] == [BATCHES] * 3
    cut = ffq.cut(sinks)
    assert cut.batch == BATCHES - 1
    for reader in cut.read():
        assert table_rows(reader.read_all()) == rows_of(range(BATCHES))
