"""Find and kill the executor processes of a Spark application."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from pyspark import cloudpickle

cloudpickle.register_pickle_by_value(sys.modules[__name__])

_BACKEND = b"CoarseGrainedExecutorBackend"


def _command(pid: int | str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def executors(application: str) -> set[int]:
    """Return the pids of the Java processes of an application's executors."""
    processes = (int(entry) for entry in os.listdir("/proc") if entry.isdecimal())
    commands = {pid: _command(pid) for pid in processes}
    return {p for p, line in commands.items() if _BACKEND in line and application.encode() in line}


def own_executor() -> int:
    """Return the pid of the executor that this Python worker belongs to."""
    pid = os.getpid()
    while _BACKEND not in _command(pid):
        stat = Path(f"/proc/{pid}/stat").read_text()
        pid = int(stat.rsplit(") ", 1)[1].split()[1])
    return pid


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
