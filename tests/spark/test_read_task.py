"""The read tasks of a scan: what each carries to its worker, and the rows that it returns."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from layouts import write_options
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ffq_spark.errors import BadOption, ExchangeMismatch
from ffq_spark.exchange.compute.hash_shards import HashShard
from ffq_spark.exchange.compute.pruning import Predicate
from ffq_spark.exchange.scan.snapshot import Snapshot, take_snapshot
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.options import ReadOptions
from ffq_spark.spark.read_task import ReadTask, plan_tasks, read_task, task_parts
from ffq_spark.spark.types import output_columns, spark_schema
from ffq_spark.store import Store

ROWS = pa.record_batch({"k": pa.array(range(40), pa.int64()), "v": [str(9 - k) for k in range(40)]})


@pytest.fixture
def snapshot(root: str) -> Snapshot:
    options = write_options(keys=("k",), partitions=4, statistics=("k",))
    write_batches(root, [ROWS], options=options)
    return take_snapshot(Store(root), ReadOptions())


def columns_of(snapshot: Snapshot, *names: str, metadata: bool = False) -> StructType:
    return output_columns(spark_schema(snapshot.exchange), names, metadata)


def rows_of(
    snapshot: Snapshot, tasks: list[Any], schema: StructType, **options: Any
) -> list[dict[str, Any]]:
    """Read tasks after they were pickled, as Spark's workers receive them."""
    received = [pickle.loads(pickle.dumps(task)) for task in tasks]
    return [
        row
        for task in received
        for batch in read_task(snapshot.store, task, schema, ReadOptions(**options))
        for row in batch.to_pylist()
    ]


def test_tasks_divide_the_parts_of_a_snapshot(snapshot: Snapshot) -> None:
    schema = columns_of(snapshot)
    tasks = plan_tasks(snapshot, ReadOptions(min_tasks=3), schema)
    assert len(tasks) >= 3
    rows = rows_of(snapshot, tasks, schema)
    assert sorted(row["k"] for row in rows) == list(range(40))


def test_a_task_carries_only_what_its_read_needs(snapshot: Snapshot) -> None:
    """All columns are read as whole parts, and only metadata columns name the attempt."""
    whole = task_parts(snapshot, ReadOptions(), columns_of(snapshot), ()).schema.names
    some = task_parts(snapshot, ReadOptions(), columns_of(snapshot, "v"), ()).schema.names
    named = columns_of(snapshot, metadata=True)
    attempts = task_parts(snapshot, ReadOptions(metadata_columns=True), named, ()).schema.names
    assert {"tail_bytes", "tail_checksum"} == set(some) - set(whole)
    assert {"query", "stage", "map_task", "attempt"} == set(attempts) - set(whole)


def test_metadata_columns_have_the_numbers_of_the_step(snapshot: Snapshot) -> None:
    schema = columns_of(snapshot, "k", metadata=True)
    tasks = plan_tasks(snapshot, ReadOptions(metadata_columns=True), schema)
    rows = rows_of(snapshot, tasks, schema, metadata_columns=True)
    assert {(row["_ffq_step"], row["_ffq_map_task"], row["_ffq_attempt"]) for row in rows} == {
        (1, 0, 1)
    }
    assert {row["_ffq_partition"] for row in rows} == {0, 1, 2, 3}


def test_predicates_leave_parts_out(snapshot: Snapshot) -> None:
    schema = columns_of(snapshot)
    below = Predicate("k", "<", (-1,))
    assert task_parts(snapshot, ReadOptions(), schema, [below]).num_rows == 0
    (task,) = plan_tasks(snapshot, ReadOptions(), schema, [below])
    assert rows_of(snapshot, [task], schema) == []


@pytest.mark.parametrize("name", ["x", "k"])
def test_a_column_that_the_exchange_lacks_is_refused(snapshot: Snapshot, name: str) -> None:
    schema = StructType([StructField(name, StringType())])
    with pytest.raises(ExchangeMismatch, match=f"has no column {name} string; it has k bigint"):
        plan_tasks(snapshot, ReadOptions(), schema)


def test_options_that_the_exchange_cannot_serve_are_refused(snapshot: Snapshot) -> None:
    with pytest.raises(BadOption, match="without a weightColumn"):
        plan_tasks(snapshot, ReadOptions(consolidate=True), columns_of(snapshot))


def test_a_task_may_sort_its_rows(snapshot: Snapshot) -> None:
    schema = columns_of(snapshot, "v")
    parts = task_parts(snapshot, ReadOptions(), schema, ())
    (batch,) = parts.combine_chunks().to_batches()
    task = ReadTask(batch, snapshot.exchange.encode(), sort_by=("v",))
    values = [row["v"] for row in rows_of(snapshot, [task], schema)]
    assert values == sorted(ROWS["v"].to_pylist())


def test_tasks_divide_a_heavy_partition_by_keys(root: str) -> None:
    """Key columns are read for their hash, and then left out."""
    keys = pa.array([b"%d" % (k % 20) for k in range(400)], pa.large_binary())
    batch = pa.record_batch({"k": keys, "v": pa.array(range(400), pa.int64())})
    write_batches(root, [batch], options=write_options(keys=("k",), partitions=1))
    snapshot = take_snapshot(Store(root), ReadOptions())
    options = ReadOptions(split="hash", target_partition_bytes=1, max_tasks=4)
    schema = columns_of(snapshot, "v")
    tasks = plan_tasks(snapshot, options, schema)
    read = [[row["v"] for row in rows_of(snapshot, [task], schema)] for task in tasks]
    assert len(read) == 4 and all(read)
    assert sorted(v for values in read for v in values) == list(range(400))
    assert sum(len({v % 20 for v in values}) for values in read) == 20


def test_a_null_is_refused_where_the_users_schema_allows_none(root: str) -> None:
    batch = pa.record_batch({"k": pa.array([1, None], pa.int64())})
    write_batches(root, [batch], options=write_options(keys=("k",), partitions=1))
    snapshot = take_snapshot(Store(root), ReadOptions())
    schema = StructType([StructField("k", LongType(), False)])
    tasks = plan_tasks(snapshot, ReadOptions(), schema)
    with pytest.raises(ExchangeMismatch, match="leave NOT NULL out"):
        rows_of(snapshot, tasks, schema)


def test_a_pickled_task_is_one_message_and_keeps_its_settings(snapshot: Snapshot) -> None:
    (task,) = plan_tasks(snapshot, ReadOptions(), columns_of(snapshot))
    assert isinstance(task, ReadTask)
    shard = HashShard(1, 2)
    given = ReadTask(task.parts, task.exchange, ("k",), ("v",), True, shard, place=b"mark")
    pickled = pickle.dumps(given)
    assert pickled.index(b"mark") < 100, "the JVM looks for the place near the beginning"
    copy = pickle.loads(pickled)
    assert copy.parts.equals(task.parts) and copy.exchange == task.exchange
    assert (copy.order, copy.sort_by, copy.reports) == (("k",), ("v",), True)
    assert copy.shard == shard
