"""Run the scenes under the profiler, and give the calls of each as walks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Function:
    """A function of the product, by its module and qualified name."""

    module: str
    name: str

    @property
    def top_package(self) -> str:
        return ".".join(self.module.split(".")[:2])


@dataclass(frozen=True)
class Call:
    """One call of a function: when, about which storage path if any, and by whom."""

    at: int
    is_generator: bool
    path: str
    function: Function
    callers: tuple[Function, ...]
    """The product's functions below it on the stack, nearest first."""

    @property
    def caller(self) -> Function | None:
        return self.callers[0] if self.callers else None


def trace_scenes() -> dict[str, list[Call]]:
    """Run all scenes once; give the calls of each in the order of time, over all processes."""
    with tempfile.TemporaryDirectory(prefix="ffq-walks-") as name:
        folder = Path(name)
        (folder / "trace").mkdir()
        times = run_scenes(folder)
        calls = sorted(read_calls(folder / "trace"), key=lambda call: call.at)
    return {
        scene: [call for call in calls if begin <= call.at < end]
        for scene, (begin, end) in times.items()
    }


def run_scenes(folder: Path) -> dict[str, tuple[int, int]]:
    paths = [str(HERE / "hook"), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {
        **{name: text for name, text in os.environ.items() if not name.startswith("FFQ_")},
        "FFQ_WALK_TRACE": str(folder / "trace"),
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1",
    }
    command = [sys.executable, str(HERE / "scenes.py"), str(folder)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    if run.returncode:
        raise RuntimeError(f"the traced scenes failed:\n{run.stderr[-4000:]}")
    times: dict[str, tuple[int, int]] = json.loads(run.stdout.splitlines()[-1])
    return times


def read_calls(folder: Path) -> Iterator[Call]:
    for file in folder.iterdir():
        for line in file.read_text().splitlines():
            at, kind, path, *names = line.split("\t")
            function, *callers = (Function(*name.split(":")) for name in names)
            yield Call(int(at), kind == "generator", path, function, tuple(callers))
