"""Measure what the plugin costs Spark's scheduler: a job of many empty tasks, with and without it.

    python benchmarks/scheduler_cost.py [--tasks 2000] [--rounds 15] [--pairs 3]

Each side has its own process, warmed up, and the rounds alternate between the two, so that noise of
the machine affects both. Two processes of the same side differ too, so several pairs are measured.
Target: a ratio of medians over all rounds of at most 1.05.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

WARM_UP = 3


def serve(plugin: bool, tasks: int) -> None:
    """Run the job each time a line comes in, and print the seconds it took."""
    from pyspark.sql import SparkSession

    import ffq_spark as ffq

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = ffq.configure(builder, plugin=plugin).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    # One write, so that the listener knows an exchange and the steward runs beside the job.
    root = tempfile.mkdtemp(prefix="ffq-bench-")
    spark.range(10).write.format("ffqshuffle").mode("append").save(root)
    for _ in sys.stdin:
        started = time.perf_counter()
        run_empty(spark, tasks)
        print(json.dumps(time.perf_counter() - started), flush=True)
    spark.stop()


def run_empty(spark: Any, tasks: int) -> None:
    """Run a job of empty tasks that needs no Python worker."""
    spark.range(0, tasks, 1, tasks).where("id < 0").write.format("noop").mode("overwrite").save()


class Side:
    """A process that runs the job on request, with or without the plugin."""

    def __init__(self, plugin: bool, tasks: int) -> None:
        command = [sys.executable, __file__, "--serve", str(int(plugin)), "--tasks", str(tasks)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.seconds: list[float] = []

    def run(self, *, count: bool) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        taken = json.loads(self._process.stdout.readline())
        if count:
            self.seconds.append(taken)

    def stop(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


def measure(tasks: int, rounds: int) -> dict[str, list[float]]:
    """Run all rounds with one pair of processes and return their seconds."""
    sides = {"without": Side(False, tasks), "with": Side(True, tasks)}
    for turn in range(WARM_UP + rounds):
        # The order alternates, so that neither side always runs first.
        for side in list(sides.values())[:: 1 if turn % 2 else -1]:
            side.run(count=turn >= WARM_UP)
    for side in sides.values():
        side.stop()
    return {name: side.seconds for name, side in sides.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if arguments.serve is not None:
        serve(bool(arguments.serve), arguments.tasks)
        return
    seconds: dict[str, list[float]] = {"without": [], "with": []}
    ratios = []
    for _ in range(arguments.pairs):
        pair = measure(arguments.tasks, arguments.rounds)
        ratios.append(statistics.median(pair["with"]) / statistics.median(pair["without"]))
        for name, rounds in pair.items():
            seconds[name] += rounds
    medians = {name: statistics.median(rounds) for name, rounds in seconds.items()}
    result = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "tasks": arguments.tasks,
        "rounds": arguments.rounds,
        "pairs": [round(ratio, 3) for ratio in ratios],
        "median": {name: round(median, 3) for name, median in medians.items()},
        "ratio": round(medians["with"] / medians["without"], 3),
        "wanted": 1.05,
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
