"""Compare gc with `shutil.rmtree`: time and memory for many stale attempt directories.

    python benchmarks/gc.py [--directories 100000] [--rounds 3] [--cases step,queries,...]

step        one committed query: 1,000 map tasks, each with one registered attempt and many stale
maps        one committed query of many map tasks, each with one registered attempt and two stale
queries     lost and aborted queries of 100 attempts each
unrecorded  a root without records: 1,000 map tasks, whose newest attempts are kept

`rmtree` deletes a tree that has only the stale directories. The two take turns, each in its own
process and on its own tree; times are medians. Memory is the peak of the gc process, for a tenth of
the directories and for all of them. Targets: a time ratio of at most 2.5, and a difference of less
than 10 MiB between the two peaks. In the case `maps`, the number of registered attempts grows too.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

DAY_MS = 24 * 3600 * 1000
MAP_TASKS = 1000
QUERY_ATTEMPTS = 100
PART = b"x" * 200


def write_attempt(root: Path, query: int, map_task: int, attempt: int, created_at_ms: int) -> None:
    """Write a complete attempt: two parts and their index."""
    from ffq_spark.format.index import IndexEntry, MapTaskIndex
    from ffq_spark.format.paths import AttemptId

    id = AttemptId(query, 0, map_task, attempt)
    entries = tuple(IndexEntry(reduce, id.part(reduce), len(PART), 1, 1) for reduce in range(2))
    index = MapTaskIndex(id, created_at_ms, entries)
    os.makedirs(root / id.directory)
    for entry in entries:
        (root / entry.file).write_bytes(PART)
    (root / id.index_json).write_bytes(index.to_json())
    (root / id.index_bin).write_bytes(index.to_bin())


def open_query(root: Path, outcome: str, registered: dict[int, int] | None = None) -> int:
    """Create the records of a query that began two days ago.

    A query with the outcome LOST gets no outcome record: gc has to fence it.
    """
    from ffq_spark.exchange.ledger.ledger import Ledger
    from ffq_spark.format import paths
    from ffq_spark.format.ids import new_query, now_ms
    from ffq_spark.format.records import Outcome, OutcomeRecord, QueryRecord, StepBody
    from ffq_spark.format.registered import Registered
    from ffq_spark.store import Store

    store, number, then = Store(str(root)), new_query(), now_ms() - 2 * DAY_MS
    Ledger(store).ensure_format()
    store.create_once(paths.query(number), QueryRecord(number, "app", 0, "append", then).encode())
    if outcome != "LOST":
        body = None
        if registered is not None:
            body = StepBody(
                query=number,
                mode="append",
                stage=0,
                rows=0,
                bytes=0,
                parts=0,
                registered=Registered.of(registered),
                manifest=paths.manifest(number),
                manifest_bytes=0,
                manifest_checksum=0,
                committed_at_ms=then,
            )
        record = OutcomeRecord(number, Outcome(outcome), then, "", step=body)
        store.create_once(paths.outcome(number), record.encode())
    return number


def build_step(root: Path, directories: int, *, kept: bool, map_tasks: int = MAP_TASKS) -> None:
    # Spark's attempts are numbered through a whole application: no two map tasks share one.
    registered = {map_task: map_task + 1 for map_task in range(map_tasks)}
    query = open_query(root, "COMMITTED", registered)
    for map_task, attempt in registered.items():
        if kept:
            write_attempt(root, query, map_task, attempt, 0)
        for stale in range(directories // map_tasks):
            write_attempt(root, query, map_task, map_tasks + 1 + stale, 0)


def build_maps(root: Path, directories: int, *, kept: bool) -> None:
    build_step(root, directories, kept=kept, map_tasks=directories // 2)


def build_queries(root: Path, directories: int, *, kept: bool) -> None:
    for number in range(directories // QUERY_ATTEMPTS):
        query = open_query(root, ("LOST", "ABORTED")[number % 2])
        for map_task in range(QUERY_ATTEMPTS):
            write_attempt(root, query, map_task, 1, 0)


def build_unrecorded(root: Path, directories: int, *, kept: bool) -> None:
    stale = directories // MAP_TASKS
    for map_task in range(MAP_TASKS):
        for attempt in range(stale + kept):
            write_attempt(root, 7, map_task, attempt + 1, 0)


CASES: dict[str, Callable[..., None]] = {
    "step": build_step,
    "maps": build_maps,
    "queries": build_queries,
    "unrecorded": build_unrecorded,
}


def measure(how: str, root: str) -> dict[str, float]:
    """Delete the tree in this process, and return time, memory and the number of files."""
    from ffq_spark import Exchange

    exchange = Exchange(root)
    # The dirty pages of building the tree must not be written during the measurement.
    os.sync()
    started, worked = time.perf_counter(), time.process_time()
    if how == "rmtree":
        shutil.rmtree(f"{root}/shuffle")
        removed = -1
    else:
        removed = exchange.gc().files
    seconds, cpu = time.perf_counter() - started, time.process_time() - worked
    # getrusage would include the peak of the parent process at the fork.
    status = Path("/proc/self/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
    return {
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu, 2),
        "peak_mib": round(peak, 1),
        "files": removed,
    }


def run_once(case: str, how: str, directories: int, folder: str) -> dict[str, float]:
    """Build a tree and delete it, each in its own process."""
    root = tempfile.mkdtemp(dir=folder)
    try:
        for task in ("build", "measure"):
            command = [sys.executable, __file__, "--task", f"{task},{case},{how},{root}"]
            command += ["--directories", str(directories)]
            done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE)
        result: dict[str, float] = json.loads(done.stdout)
        if how == "gc":
            assert result["files"] == 4 * directories, result
        return result
    finally:
        shutil.rmtree(root)


def compare(case: str, directories: int, rounds: int, folder: str) -> Iterator[dict[str, object]]:
    """Run all rounds with all directories, then gc once with a tenth of them, and compare."""
    runs: dict[str, list[dict[str, float]]] = {"rmtree": [], "gc": []}
    for _ in range(rounds):
        for how, results in runs.items():
            results.append(run_once(case, how, directories, folder))
            yield {"case": case, "directories": directories, "by": how, **results[-1]}
    few = run_once(case, "gc", directories // 10, folder)["peak_mib"]
    many = max(result["peak_mib"] for result in runs["gc"])
    seconds = _medians(runs, "seconds")
    cpu = _medians(runs, "cpu_seconds")
    yield {
        "case": case,
        "directories": directories,
        "rmtree_seconds": seconds["rmtree"],
        "gc_seconds": seconds["gc"],
        "ratio": round(seconds["gc"] / seconds["rmtree"], 2),
        "wanted_ratio": 2.5,
        "cpu_ratio": round(cpu["gc"] / cpu["rmtree"], 2),
        "peak_mib": {directories // 10: few, directories: many},
        "peak_growth_mib": round(many - few, 1),
        "wanted_growth_mib": 10,
    }


def _medians(runs: dict[str, list[dict[str, float]]], what: str) -> dict[str, float]:
    return {how: statistics.median(run[what] for run in results) for how, results in runs.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directories", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--folder", help="where the trees are made; a RAM disk shows least noise")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.task:
        task, case, how, root = arguments.task.split(",")
        if task == "build":
            CASES[case](Path(root), arguments.directories, kept=how == "gc")
        else:
            print(json.dumps(measure(how, root)))
        return
    if arguments.directories <= 0 or arguments.directories % (10 * MAP_TASKS):
        parser.error(
            f"--directories={arguments.directories} must be a multiple of {10 * MAP_TASKS}: "
            f"{MAP_TASKS} map tasks share them, also when a tenth of them is measured"
        )
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for case in arguments.cases.split(","):
            for line in compare(case, arguments.directories, arguments.rounds, folder):
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
