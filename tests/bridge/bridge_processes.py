"""Driver applications as real processes; a mark in the environment finds all that they start."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

HERE = Path(__file__).parent


def wait_for(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Wait until the condition holds; after `seconds`, fail with a message about `what`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"still not after {seconds} s: {what}"
        time.sleep(0.05)


class App:
    """A run of a driver application; every process that it starts inherits its mark."""

    def __init__(
        self,
        root: str,
        gate: Path,
        *arguments: str,
        lease: int = 2,
        command: list[str] | None = None,
    ) -> None:
        self.mark = uuid.uuid4().hex
        self.gate = gate
        self.log = gate.with_suffix(f".{self.mark[:6]}.log")
        start = command or [sys.executable, str(HERE / "bridge_app.py")]
        environment = {**os.environ, "FFQ_TEST_MARK": self.mark, "LEASE": str(lease)}
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [*start, root, str(gate), *arguments],
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> App:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: object, trace: TracebackType | None
    ) -> None:
        for pid in self.pids():
            kill(pid, signal.SIGKILL)
        self.process.wait()

    def times_printed(self, word: str) -> int:
        """Return how often the application printed a word."""
        return self.log.read_text(errors="replace").split().count(word)

    def wait_printed(self, word: str, times: int = 1, seconds: float = 300) -> None:
        def check() -> bool:
            if self.process.poll() not in (None, 0):
                raise AssertionError(self.log.read_text(errors="replace")[-3000:])
            return self.times_printed(word) >= times

        wait_for(check, seconds, f"{word} of {self.log}")

    def pids(self, containing: str = "") -> list[int]:
        """Return the living processes of this application whose command line contains a text."""
        processes = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and self._is_own(entry, containing):
                processes.append(int(entry.name))
        return processes

    def _is_own(self, entry: Path, containing: str) -> bool:
        try:
            if self.mark.encode() not in (entry / "environ").read_bytes():
                return False
            if (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return False
            return containing in (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (OSError, UnicodeDecodeError):
            return False

    @property
    def jvm(self) -> int:
        """The pid of the driver's JVM."""
        (pid,) = self.pids("org.apache.spark.deploy.SparkSubmit")
        return pid

    @property
    def stewards(self) -> list[int]:
        """The pids of the stewards beside the driver."""
        return self.pids("-m ffq_spark.spark.steward")

    def signal_driver(self, number: int) -> None:
        os.kill(self.jvm, number)


def kill(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
