"""Run contenders side by side: each in its own process, warmed up, taking turns.

A *contender* is a context manager that sets itself up and yields its `Work`. All contenders of a
*measure* stay alive, and run one after the other in each round. The order alternates between
rounds, so that noise of the machine affects all of them. In its turn a contender runs twice, and
the second run counts, because the wait for its turn has a cost: Spark, for example, ends idle
Python workers after a minute. A *dataset* is made once, by its own process, and kept for all
contenders that need it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

TURN_LIMIT_SECONDS = 1800
RUNS_A_TURN = 2
LOG_LINES = 15


@dataclass(frozen=True)
class Settings:
    """The command line flags of a run, passed to each of its processes."""

    rows: int
    partitions: int
    cores: int
    rounds: int
    warm_up: int
    driver_memory: str
    buffer: str
    maps: int
    layouts: str
    folder: str

    @property
    def keys(self) -> int:
        """Return the number of distinct keys: a key has five rows on average."""
        return max(self.rows // 5, 1)

    def path(self, dataset: str) -> str:
        return f"{self.folder}/kept/{dataset}"


@dataclass(frozen=True)
class Turn:
    """One run of one contender: its number, and a path for its output that does not exist yet."""

    number: int
    folder: str


@dataclass(frozen=True)
class Work:
    """The functions of a contender. Only `run` is timed."""

    run: Callable[[Turn], object]
    check: Callable[[Turn], object] | None = None
    """Called after the first turn: returns a value that must be equal for all contenders."""
    facts: Callable[[Turn], dict[str, object]] | None = None
    """Called after the last turn: returns more figures for the report."""


Start = Callable[[Settings], AbstractContextManager[Work | tuple[Work, ...]]]


@dataclass(frozen=True)
class Contender:
    """One process of a measure. It has one name for each `Work` that it yields."""

    measure: str
    names: tuple[str, ...]
    start: Start
    needs: tuple[str, ...]
    when: Callable[[Settings], bool]


@dataclass(frozen=True)
class Dataset:
    """Files on disk that contenders read."""

    make: Callable[[Settings, str], None]
    needs: tuple[str, ...]


CONTENDERS: list[Contender] = []
DATASETS: dict[str, Dataset] = {}


def contender(
    measure: str,
    *names: str,
    needs: Sequence[str] = (),
    when: Callable[[Settings], bool] = lambda settings: True,
) -> Callable[[Start], Start]:
    def register(start: Start) -> Start:
        CONTENDERS.append(Contender(measure, names, start, tuple(needs), when))
        return start

    return register


def dataset(name: str, needs: Sequence[str] = ()) -> Callable[[Any], Any]:
    def register(make: Callable[[Settings, str], None]) -> Callable[[Settings, str], None]:
        DATASETS[name] = Dataset(make, tuple(needs))
        return make

    return register


def tree_bytes(folder: str) -> dict[str, object]:
    """Return the size and the number of the files below a directory."""
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    return {"mb": round(sum(p.stat().st_size for p in files) / 1e6, 1), "files": len(files)}


# ---- in a contender's process


def serve() -> None:
    """Make one dataset, or run one contender by orders from stdin: the entry point of a module."""
    parser = argparse.ArgumentParser()
    for flag in ("--settings", "--make", "--measure", "--name"):
        parser.add_argument(flag)
    arguments = parser.parse_args()
    settings = Settings(**json.loads(arguments.settings))
    if arguments.make:
        DATASETS[arguments.make].make(settings, settings.path(arguments.make))
        return
    # Answers go to stdout, so everything else that prints is redirected to stderr.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    (chosen,) = (
        c for c in CONTENDERS if c.measure == arguments.measure and arguments.name in c.names
    )
    with chosen.start(settings) as yielded:
        works = yielded if isinstance(yielded, tuple) else (yielded,)
        by_name = dict(zip(chosen.names, works, strict=True))
        answers.write("null\n")
        for line in sys.stdin:
            order = json.loads(line)
            last = (order["turn"] + 1) * RUNS_A_TURN
            runs = [
                Turn(number, f"{settings.folder}/turns/{os.getpid()}/{number}")
                for number in range(last - RUNS_A_TURN, last)
            ]
            answer = _obey(by_name[order["name"]], order["action"], runs)
            answers.write(json.dumps(answer) + "\n")


def _obey(work: Work, action: str, runs: Sequence[Turn]) -> object:
    if action == "check":
        return work.check(runs[-1]) if work.check else None
    if action == "facts":
        return work.facts(runs[-1]) if work.facts else {}
    return [_timed(work, run) for run in runs][-1]


def _timed(work: Work, run: Turn) -> float:
    mine = os.path.dirname(run.folder)
    shutil.rmtree(mine, ignore_errors=True)
    os.makedirs(mine, exist_ok=True)
    # The dirty pages of other contenders must not be written during this run.
    os.sync()
    started = time.perf_counter()
    work.run(run)
    return time.perf_counter() - started


# ---- in the driver


class ContenderFailed(Exception):
    """The process of a contender has ended; the message is the last lines of its log."""


class Process:
    """The process of a contender, as the driver of the run sees it."""

    def __init__(self, contender: Contender, settings: Settings) -> None:
        name = contender.names[0]
        slug = "".join(c if c.isalnum() else "-" for c in f"{contender.measure}-{name}")
        os.makedirs(f"{settings.folder}/logs", exist_ok=True)
        self._log = f"{settings.folder}/logs/{slug}.log"
        arguments = ["--measure", contender.measure, "--name", name]
        with open(self._log, "w") as log:
            self._process = subprocess.Popen(
                _command(contender.start, settings, *arguments),
                env=_environment(settings),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def ask(self, name: str, action: str, turn: int) -> Any:
        assert self._process.stdin
        order = {"name": name, "action": action, "turn": turn}
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the process has ended, so answer() finds no line and raises
        return self.answer()

    def answer(self) -> Any:
        assert self._process.stdout
        guard = threading.Timer(TURN_LIMIT_SECONDS, self._process.kill)
        guard.start()
        try:
            line = self._process.stdout.readline()
        finally:
            # A running timer would keep the driver alive after a signal.
            guard.cancel()
        if not line:
            raise ContenderFailed(_tail(self._log))
        return json.loads(line)

    def stop(self) -> None:
        assert self._process.stdin
        try:
            self._process.stdin.close()
            self._process.wait(60)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()


@dataclass
class Side:
    """The results of one name of a contender so far."""

    name: str
    process: Process
    seconds: list[float] = field(default_factory=list)
    checked: object = None
    facts: dict[str, object] = field(default_factory=dict)
    failed: str = ""

    def ask(self, action: str, turn: int) -> Any:
        if self.failed:
            return None
        try:
            return self.process.ask(self.name, action, turn)
        except ContenderFailed as error:
            self.failed = str(error)
            return None

    def result(self) -> dict[str, object]:
        values: dict[str, object] = {
            "median": None,
            "seconds": [round(seconds, 4) for seconds in self.seconds],
        }
        if self.seconds:
            values["median"] = round(statistics.median(self.seconds), 4)
        if self.checked is not None:
            values["checked"] = self.checked
        if self.failed:
            # The last line is the error; the traceback above it names files of this machine.
            values["failed"] = self.failed.splitlines()[-1]
        return {**values, **self.facts}


def run_measure(
    measure: str, settings: Settings, say: Callable[[str], None]
) -> dict[str, dict[str, object]]:
    """Run all rounds of a measure and return the results by name."""
    chosen = [c for c in CONTENDERS if c.measure == measure and c.when(settings)]
    chosen.sort(key=lambda c: not c.names[0].startswith("ours"))
    for name in _in_order({need for c in chosen for need in c.needs}):
        make_dataset(name, settings, say)
    with ExitStack() as stack:
        sides = [side for c in chosen for side in _start(c, settings, stack, say)]
        last = settings.warm_up + settings.rounds - 1
        free = [available_mib()]
        for number in range(last + 1):
            for side in sides[:: -1 if number % 2 else 1]:
                seconds = side.ask("run", number)
                if number == 0:
                    side.checked = side.ask("check", number)
                if seconds is not None and number >= settings.warm_up:
                    side.seconds.append(seconds)
                if number == last:
                    side.facts = side.ask("facts", number) or {}
                free.append(available_mib())
                shown = "failed" if seconds is None else f"{seconds:.3f} s"
                say(f"  {_label(number, settings)}  {side.name}: {shown}")
        for side in sides:
            if side.failed:
                say(f"  {side.name} failed:\n{side.failed}")
        # All contenders are alive together. If the machine swapped, the figures are useless.
        say(f"  least memory available: {min(free)} MiB")
    return {side.name: side.result() for side in sides}


def _start(
    contender: Contender, settings: Settings, stack: ExitStack, say: Callable[[str], None]
) -> list[Side]:
    process = Process(contender, settings)
    stack.callback(process.stop)
    sides = [Side(name, process) for name in contender.names]
    try:
        process.answer()
    except ContenderFailed as error:
        for side in sides:
            side.failed = str(error)
        say(f"  {', '.join(contender.names)} did not start")
    return sides


def make_dataset(name: str, settings: Settings, say: Callable[[str], None]) -> None:
    """Make a dataset, unless a complete one of the same shape exists."""
    done = Path(f"{settings.path(name)}.done")
    shape = f"{settings.rows} {settings.partitions} {settings.cores} {settings.maps}\n"
    if done.exists() and done.read_text() == shape:
        return
    say(f"  making {name}")
    done.unlink(missing_ok=True)
    shutil.rmtree(settings.path(name), ignore_errors=True)
    os.makedirs(settings.path(""), exist_ok=True)
    subprocess.run(
        _command(DATASETS[name].make, settings, "--make", name),
        env=_environment(settings),
        stderr=subprocess.DEVNULL,
        check=True,
    )
    done.write_text(shape)


def _in_order(wanted: set[str]) -> Iterator[str]:
    """Sort datasets so that each comes after the ones that it is made from."""
    seen: dict[str, None] = {}

    def visit(name: str) -> None:
        for need in DATASETS[name].needs:
            visit(need)
        seen[name] = None

    for name in sorted(wanted):
        visit(name)
    return iter(seen)


def _command(function: Any, settings: Settings, *arguments: str) -> list[str]:
    module = sys.modules[function.__module__].__file__
    assert module
    return [sys.executable, module, "--settings", json.dumps(asdict(settings)), *arguments]


def _environment(settings: Settings) -> dict[str, str]:
    limits = dict.fromkeys(("POLARS_MAX_THREADS", "OMP_NUM_THREADS"), str(settings.cores))
    spark = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    return {**os.environ, **limits, **spark}


def available_mib() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("MemAvailable:"))
    return int(line.split()[1]) // 1024


def _label(number: int, settings: Settings) -> str:
    if number < settings.warm_up:
        return "warm-up"
    return f"round {number - settings.warm_up + 1}"


def _tail(path: str) -> str:
    lines = Path(path).read_text(errors="replace").splitlines()
    return "\n".join(lines[-LOG_LINES:]) or "its log is empty"
