"""Compare the cost of commits and plans at the end of a long log with that of a short one.

    python benchmarks/log_growth.py [--steps 10000]

Every step appends one tiny part, so the newest snapshot has all of them. The last 100 steps of the
long log alternate with the first 100 of the short one, so that noise of the machine affects both.
Figures are mean milliseconds and include the log checkpoints written meanwhile. Target: a ratio of
at most 1.5.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator

import pyarrow as pa

from ffq_spark.exchange.scan.snapshot import take_snapshot
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.options import ReadOptions, WriteOptions
from ffq_spark.store import Entry, Store
from ffq_spark.store.local import LocalBackend

WINDOW = 100
OPTIONS = WriteOptions(keys=("k",), partitions=1)


class CountingBackend(LocalBackend):
    """A local backend that counts its reads and listings."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.reads = self.lists = 0

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes | pa.Buffer:
        self.reads += 1
        return super().read(path, start, length)

    def scan(self, path: str) -> Iterator[Entry]:
        self.lists += 1
        return super().scan(path)


class Log:
    """An exchange that grows step by step, with the times of its commits and plans."""

    def __init__(self, root: str) -> None:
        self._store = Store(root)
        self.steps = 0
        self.commits: list[float] = []
        self.plans: list[float] = []

    def grow(self, steps: int) -> None:
        for _ in range(steps):
            self._commit()

    def measure(self) -> None:
        self.commits.append(milliseconds(self._commit))
        self.plans.append(milliseconds(self.plan))

    def _commit(self) -> None:
        self.steps += 1
        batch = pa.record_batch({"k": pa.array([self.steps], pa.int64())})
        write_batches(self._store.root, [batch], options=OPTIONS, store=self._store)

    def plan(self, store: Store | None = None) -> None:
        parts = take_snapshot(store or self._store, ReadOptions()).parts()
        assert parts.num_rows == self.steps

    def requests(self) -> dict[str, int]:
        """Count the requests of planning the newest snapshot."""
        counting = CountingBackend(self._store.root)
        self.plan(Store(self._store.root, backend=counting))
        return {"reads": counting.reads, "lists": counting.lists}


def milliseconds(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1000


def compared(first: list[float], last: list[float]) -> dict[str, float]:
    means = statistics.mean(first), statistics.mean(last)
    return {
        "first_100_ms": round(means[0], 3),
        "last_100_ms": round(means[1], 3),
        "ratio": round(means[1] / means[0], 3),
    }


def run(folder: str, steps: int) -> dict[str, object]:
    long, short = Log(f"{folder}/long"), Log(f"{folder}/short")
    long.grow(steps - WINDOW)
    # The first plan imports modules, so it must come before the measurement.
    long.plan()
    for _ in range(WINDOW):
        short.measure()
        long.measure()
    return {
        "steps": long.steps,
        "commit": compared(short.commits, long.commits),
        "planning": compared(short.plans, long.plans),
        "newest_snapshot": long.requests(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000)
    steps = max(parser.parse_args().steps, 2 * WINDOW)
    with tempfile.TemporaryDirectory(prefix="ffq-log-growth-") as folder:
        print(json.dumps(run(folder, steps), indent=2))


if __name__ == "__main__":
    main()
