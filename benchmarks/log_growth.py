"""Whether a long log costs more than a short one: commits and plans at its beginning and its end.

    python benchmarks/log_growth.py [--steps 10000]

Every step appends one tiny part, so the newest snapshot shows all of them. Figures are means of
milliseconds over 100 neighbouring steps, the writing of checkpoints included; at most 1.5 times as
much at the end as at the beginning is wanted.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time

import pyarrow as pa

from ffq_spark.exchange.snapshot import take_snapshot
from ffq_spark.exchange.write import write_batches
from ffq_spark.options import ReadOptions, WriteOptions
from ffq_spark.store import Store
from ffq_spark.store.local import LocalBackend

WINDOW = 100
OPTIONS = WriteOptions(keys=("k",), partitions=1)


class CountingBackend(LocalBackend):
    """Local files, and how often they were asked for."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.reads = self.lists = 0

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        self.reads += 1
        return super().read(path, start, length)

    def list(self, path: str):  # type: ignore[no-untyped-def]
        self.lists += 1
        return super().list(path)


def commit(store: Store, number: int) -> None:
    batch = pa.record_batch({"k": pa.array([number], pa.int64())})
    write_batches(store.root, [batch], options=OPTIONS, store=store)


def plan(store: Store, steps: int) -> None:
    parts = take_snapshot(store, ReadOptions()).parts()
    assert parts.num_rows == steps


def timed(work, *arguments) -> float:  # type: ignore[no-untyped-def]
    started = time.perf_counter()
    work(*arguments)
    return (time.perf_counter() - started) * 1000


def measure(root: str, steps: int) -> dict[str, object]:
    store = Store(root)
    commits: list[float] = []
    plans: dict[int, float] = {}
    for number in range(1, steps + 1):
        commits.append(timed(commit, store, number))
        if number <= WINDOW or number > steps - WINDOW:
            plans[number] = timed(plan, store, number)
    backend = CountingBackend(root)
    store._backend = backend
    plan(store, steps)
    return {
        "steps": steps,
        "commit": compared(commits[:WINDOW], commits[-WINDOW:]),
        "planning": compared(*halves(plans, steps)),
        "longest_commit_ms": round(max(commits), 2),
        "newest_snapshot": {"reads": backend.reads, "lists": backend.lists},
    }


def halves(plans: dict[int, float], steps: int) -> tuple[list[float], list[float]]:
    first = [taken for number, taken in plans.items() if number <= WINDOW]
    return first, [taken for number, taken in plans.items() if number > steps - WINDOW]


def compared(first: list[float], last: list[float]) -> dict[str, float]:
    means = statistics.mean(first), statistics.mean(last)
    return {
        "first_100_ms": round(means[0], 3),
        "last_100_ms": round(means[1], 3),
        "ratio": round(means[1] / means[0], 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000)
    arguments = parser.parse_args()
    root = tempfile.mkdtemp(prefix="ffq-log-growth-")
    try:
        print(json.dumps(measure(root, arguments.steps), indent=2))
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
