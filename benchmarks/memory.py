"""Measure the memory of one write task: its peak resident size above that of an idle process.

    python benchmarks/memory.py [--mib 1024] [--buffer 64MiB]

Each number of partitions is written by its own process, from batches that are generated one by one.
Target: at most `maxBufferBytes` of rows, plus what Arrow and the open files need.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

ROWS = 65_536


def batches(total: int) -> Iterator[object]:
    """Yield batches of random rows of about 100 bytes: a key, two numbers and two strings."""
    import numpy as np
    import pyarrow as pa

    generator = np.random.default_rng(1)
    written = 0
    while written < total:
        key = generator.integers(0, 1 << 40, ROWS)
        text = pa.array(np.char.add("some longer text, row ", key.astype("U20")))
        batch = pa.record_batch({"k": key, "a": key * 2, "b": key / 3, "t": text, "u": text})
        written += batch.nbytes
        yield batch


def measure(partitions: int, total: int, buffer: str) -> dict[str, float]:
    """Write an exchange in this process and return its size, time and peak memory."""
    from ffq_spark.exchange.write.local_write import write_batches
    from ffq_spark.options import WriteOptions

    options = WriteOptions.resolve(
        {"keys": "k", "partitions": str(partitions), "maxBufferBytes": buffer}
    )
    with tempfile.TemporaryDirectory() as folder:
        write_batches(f"{folder}/warm", _first(batches(1)), options=options)
        idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started = time.perf_counter()
        step = write_batches(f"{folder}/root", batches(total), options=options)
        seconds = time.perf_counter() - started
    assert step is not None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "partitions": partitions,
        "rows": step.body.rows,
        "written_mib": round(step.body.bytes / (1 << 20)),
        "idle_mib": round(idle / 1024),
        "peak_above_idle_mib": round((peak - idle) / 1024),
        "seconds": round(seconds, 1),
    }


def _first(source: Iterator[object]) -> list[object]:
    return [next(source)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--buffer", default="64MiB")
    parser.add_argument("--partitions", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.partitions:
        print(json.dumps(measure(arguments.partitions, arguments.mib << 20, arguments.buffer)))
        return
    for partitions in (1, 64, 4_000, 10_000):
        command = [sys.executable, __file__, "--partitions", str(partitions)]
        command += ["--mib", str(arguments.mib), "--buffer", arguments.buffer]
        print(subprocess.run(command, check=True, text=True, capture_output=True).stdout.strip())


if __name__ == "__main__":
    main()
