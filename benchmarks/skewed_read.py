"""Measure the read tasks of an exchange with skewed keys: sizes, planning, bytes rewritten.

    python benchmarks/skewed_read.py [--rows 20000000] [--partitions 64] [--maps 16] [--target 8MiB]

The keys follow Zipf's law with the exponent 1.2: the first key has 18% of the rows. For each
value of the option `split`, one line has the number of tasks, the bytes that they read, the largest
and the median of the bytes that they return, and the time to plan from metadata alone. A task by
hash reads its whole partition and returns the rows of its keys, which are counted here.

A single key cannot be divided and kept together. Keys that are larger than the target alone are
*hot*: they are listed apart, and their bytes are left out of the ratio `largest_to_median`.
Targets: planning takes less than a second, and reading in another way rewrites no byte.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ffq_spark import Exchange
from ffq_spark.exchange.compute.hash_shards import row_shards
from ffq_spark.exchange.compute.row_partitions import row_partitions
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.scan.read_plan import ReadPlan
from ffq_spark.exchange.write.attempt_writer import write_attempt
from ffq_spark.exchange.write.commit import commit_write
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.exchange.write.prepare import prepare
from ffq_spark.format.records import ExchangeRecord
from ffq_spark.options import WriteOptions, size
from ffq_spark.store import Store

EXPONENT = 1.2
BATCH = 1 << 18
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("x", pa.float64())])


def batches(rows: int, seed: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one map task; the same seed gives the same rows."""
    generator = np.random.default_rng(seed)
    for start in range(0, rows, BATCH):
        count = min(BATCH, rows - start)
        keys = generator.zipf(EXPONENT, count)
        yield pa.record_batch([keys, np.arange(count), generator.random(count)], schema=SCHEMA)


def write(store: Store, rows: int, maps: int, partitions: int) -> ExchangeRecord:
    """Write one step of several map tasks."""
    options = WriteOptions(keys=("k",), partitions=partitions)
    exchange = prepare(store, options, SCHEMA)
    job = WriteJob.of(exchange, Ledger(store).begin("append", "benchmark"), options)
    outputs = [write_attempt(store, job, m, 1, batches(rows // maps, m)) for m in range(maps)]
    commit_write(store, job, outputs, None)
    return exchange


def count_keys(rows: int, maps: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct keys, and the number of rows of each."""
    counts: Counter[int] = Counter()
    for number in range(maps):
        for batch in batches(rows // maps, number):
            keys, found = np.unique(batch["k"].to_numpy(), return_counts=True)
            counts.update(dict(zip(keys.tolist(), found.tolist(), strict=True)))
    keys = np.fromiter(counts.keys(), np.int64, len(counts))
    return keys, np.fromiter(counts.values(), np.int64, len(counts))


def returned_bytes(
    plan: ReadPlan, exchange: ExchangeRecord, keys: NDArray[np.int64], counts: NDArray[np.int64]
) -> list[int]:
    """Return the bytes of the rows that each task of `split=hash` returns, for these keys."""
    batch = pa.record_batch({"k": keys})
    partitions = row_partitions(exchange, batch)
    row_bytes = plan.bytes / plan.rows
    sizes = []
    for task in plan.tasks:
        own = np.isin(partitions, task.partitions)
        if task.shards > 1:
            own[own] = row_shards(exchange, batch.filter(pa.array(own)), task.shards) == task.shard
        sizes.append(int(counts[own].sum() * row_bytes))
    return sizes


def describe(plan: ReadPlan, seconds: float, returned: list[int]) -> dict[str, Any]:
    middle = statistics.median(returned)
    return {
        "split": plan.split,
        "tasks": len(plan.tasks),
        "plan_seconds": round(seconds, 3),
        "bytes": plan.bytes,
        "read_bytes": plan.read_bytes,
        "largest_returned": max(returned),
        "median_returned": int(middle),
        "largest_to_median": round(max(returned) / max(middle, 1), 2),
    }


def stored_bytes(store: Store) -> int:
    return sum(size for _, size in store.walk(""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--maps", type=int, default=16)
    parser.add_argument("--target", type=size, default=8 << 20)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Store(f"{folder}/root")
        record = write(store, arguments.rows, arguments.maps, arguments.partitions)
        exchange, before = Exchange(f"{folder}/root"), stored_bytes(store)
        keys, counts = count_keys(arguments.rows, arguments.maps)
        for split in ("never", "map", "hash"):
            seconds = []
            for _ in range(arguments.rounds):
                started = time.perf_counter()
                plan = exchange.plan(split=split, target_partition_bytes=arguments.target)
                seconds.append(time.perf_counter() - started)
            returned = [task.bytes for task in plan.tasks]
            if split == "hash":
                row_bytes = plan.bytes / plan.rows
                hot = counts * row_bytes > arguments.target
                returned = returned_bytes(plan, record, keys[~hot], counts[~hot])
            print(json.dumps(describe(plan, statistics.median(seconds), returned)))
        for key, count in sorted(zip(keys[hot].tolist(), counts[hot].tolist(), strict=True)):
            print(json.dumps({"hot_key": key, "rows": count, "bytes": int(count * row_bytes)}))
        print(json.dumps({"bytes_rewritten": stored_bytes(store) - before}))


if __name__ == "__main__":
    main()
