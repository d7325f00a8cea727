"""Compare a merge of sorted parts with a plain read: time and peak memory of both.

    python benchmarks/merge.py [--rows 10000000] [--partitions 64] [--maps 16] [--rounds 5]

Every part is a sorted run: 64 partitions of 16 map tasks are 1,024 runs. Every read has its own
process. In each round all reads take turns, in an order that alternates between rounds. `sort` is
what a user without the merge does: a plain read into memory, then Arrow's `sort_by`. Times are
medians. Memory is the peak resident size above that of the process before the read. Target: a merge
takes at most twice the time of a plain read.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

READS = ("plain", "merge", "merge two columns", "merge one column", "sort")
TARGET = 2.0


def write(root: str, rows: int, partitions: int, maps: int) -> None:
    """Write one step of sorted parts, with a long, a double, an int and a string in each row."""
    import numpy as np
    import pyarrow as pa

    from ffq_spark.exchange.ledger.ledger import Ledger
    from ffq_spark.exchange.write.attempt_writer import write_attempt
    from ffq_spark.exchange.write.commit import commit_write
    from ffq_spark.exchange.write.job import WriteJob
    from ffq_spark.exchange.write.prepare import batch_delivery, new_initiator, prepare
    from ffq_spark.options import WriteOptions
    from ffq_spark.store import Store

    def batch(seed: int) -> pa.RecordBatch:
        generator = np.random.default_rng(seed)
        key = generator.integers(0, max(rows // 5, 1), rows // maps)
        number = generator.integers(0, 1 << 31, rows // maps)
        text = pa.array(np.char.add("row ", (number % 1000).astype("U4")))
        columns = {"k": key, "a": number / 7, "b": number.astype(np.int32), "t": text}
        return pa.record_batch(columns)

    options = WriteOptions(keys=("k",), partitions=partitions, sort_by=("k", "b"))
    store = Store(root)
    exchange = prepare(store, options, batch(0).schema)
    query = Ledger(store).begin("append", new_initiator())
    job = WriteJob.of(exchange, query, options)
    outputs = [write_attempt(store, job, task, task + 1, [batch(task)]) for task in range(maps)]
    commit_write(store, job, outputs, batch_delivery(options))


def measure(how: str, root: str) -> dict[str, float]:
    """Read in this process, and return the time, the peak memory and the number of rows."""
    import ffq_spark as ffq

    exchange = ffq.Exchange(root)
    options: dict[str, Any] = {
        "merge": {"merge_by": "k"},
        "merge two columns": {"merge_by": "k,b"},
        "merge one column": {"merge_by": "k", "columns": "k"},
    }.get(how, {})
    # A first batch loads all modules and warms the page cache for the parts it opens.
    exchange.read(partitions=[0], **options).read_all()
    before = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    started = time.perf_counter()
    reader = exchange.read(**options)
    if how == "sort":
        rows = reader.read_all().sort_by("k").num_rows
    else:
        rows = sum(batch.num_rows for batch in reader)
    seconds = time.perf_counter() - started
    above = _resident("VmHWM") - before
    return {"seconds": round(seconds, 3), "peak_mib": round(above, 1), "rows": rows}


def _resident(what: str) -> float:
    """Return the resident size of this process in MiB, or its peak since the last reset."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{what}:")[1].split()[0]) / 1024


def run_once(how: str, root: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--task", how, "--root", root]
    done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--maps", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    parser.add_argument("--root", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.task:
        print(json.dumps(measure(arguments.task, arguments.root)))
        return
    runs: dict[str, list[dict[str, float]]] = {how: [] for how in READS}
    with tempfile.TemporaryDirectory() as folder:
        root = f"{folder}/exchange"
        write(root, arguments.rows, arguments.partitions, arguments.maps)
        # The dirty pages of the write must not be written during the measurement.
        os.sync()
        for turn in range(arguments.rounds):
            for how in READS if turn % 2 == 0 else reversed(READS):
                runs[how].append(run_once(how, root))
                print(json.dumps({"round": turn, "read": how, **runs[how][-1]}), flush=True)
    assert len({result["rows"] for results in runs.values() for result in results}) == 1, runs
    seconds = {how: statistics.median(run["seconds"] for run in runs[how]) for how in READS}
    ratio = seconds["merge"] / seconds["plain"]
    report = {
        "rows": arguments.rows,
        "runs": arguments.partitions * arguments.maps,
        "seconds": seconds,
        "peak_mib": {how: max(run["peak_mib"] for run in runs[how]) for how in READS},
        "merge_to_plain": round(ratio, 2),
        "target": TARGET,
        "merge_to_sort": round(seconds["merge"] / seconds["sort"], 2),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
