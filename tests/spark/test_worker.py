"""The one-time set-up of Python workers, in its own process because it changes the process."""

from __future__ import annotations

import json
import subprocess
import sys

import pyarrow as pa
from layouts import write_options

from ffq_spark.exchange.write.local_write import write_batches

SCRIPT = """
import gc, json, sys
from ffq_spark.exchange.scan.snapshot import take_snapshot
from ffq_spark.options import ReadOptions
from ffq_spark.spark.reader import ExchangeReader
from ffq_spark.spark.types import spark_schema
from ffq_spark.store import Store

store = Store(sys.argv[1])
schema = spark_schema(take_snapshot(store, ReadOptions()).exchange)
reader = ExchangeReader(store, ReadOptions(), schema)
(task,) = reader.partitions()
counts = [gc.get_freeze_count()]
rows = reader.read(task)
next(rows)
counts.append(gc.get_freeze_count())
rows.close()
counts.append(gc.get_freeze_count())
made_since = [[] for _ in range(1000)]
list(reader.read(task))
counts.append(gc.get_freeze_count())
print(json.dumps(counts))
"""


def test_a_read_freezes_the_heap_once_also_where_it_ends_early(root: str) -> None:
    options = write_options(keys=("k",), partitions=2)
    write_batches(root, [pa.record_batch({"k": range(100)})], options=options)
    command = [sys.executable, "-c", SCRIPT, root]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    before, while_reading, after, later = json.loads(done.stdout)
    assert before == while_reading == 0
    assert 0 < later <= after
