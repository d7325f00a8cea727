"""Signals: the first one asks a process to stop, the second one ends it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import sys
from ffq_spark.cli.signals import stop_requested
requested = stop_requested()
print("ready", flush=True)
requested.wait()
print("asked to stop", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_asks_and_the_second_ends(number: signal.Signals) -> None:
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.stdout.readline() == "asked to stop\n"
        process.send_signal(number)
        assert process.wait(timeout=60) == 1
