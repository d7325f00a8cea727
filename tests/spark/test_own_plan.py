"""The plans that the plugin requests: their notes and their tasks, without a Spark session."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from ffq_spark.errors import Unsupported
from ffq_spark.exchange.scan.snapshot import take_snapshot
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.options import ReadOptions, WriteOptions
from ffq_spark.spark.own_plan import own_plan
from ffq_spark.spark.plan_note import PlanRequest
from ffq_spark.spark.types import spark_schema
from ffq_spark.store import Store

TABLE = pa.table({"k": pa.array(range(100), pa.int64()), "v": [1 + k / 2 for k in range(100)]})


def write(root: Path, **options: Any) -> Store:
    resolved = WriteOptions.resolve({"keys": "k", "partitions": "8", **options}, {})
    write_batches(str(root), TABLE.to_batches(), options=resolved)
    return Store(str(root))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return write(tmp_path / "plain")


def plan(
    store: Store, request: PlanRequest, **options: str
) -> tuple[dict[str, Any], list[InputPartition]]:
    """Plan a read; return the note as the JVM decodes it, and the tasks."""
    read = ReadOptions.resolve(options, {})
    snapshot = take_snapshot(store, read)
    schema: StructType = spark_schema(snapshot.exchange)
    note, *tasks = own_plan(snapshot, read, schema, request)
    pickled = pickle.dumps(note)
    text = pickled[pickled.index(b"\x01ffq<") + 5 : pickled.index(b">ffq\x01")]
    return json.loads(text), tasks


def test_a_plain_plan_has_few_tasks_and_tells_the_sizes(store: Store) -> None:
    note, tasks = plan(store, PlanRequest())
    assert len(tasks) == len(note["tasks"]) == 1
    parts, rows, size = note["tasks"][0]
    assert (parts, rows) == (8, 100) == (note["parts"], note["rows"])
    assert size == note["bytes"] > 0
    assert (note["partitions"], note["partitions_read"], note["partitions_pruned"]) == (8, 8, 0)
    assert note["keys"] == ["k"] and note["counts"] is True


@pytest.mark.parametrize("count", [8, 4, 1])
def test_a_partitioned_plan_has_a_marked_task_for_each_partition(store: Store, count: int) -> None:
    note, tasks = plan(store, PlanRequest(partitions=count))
    assert len(tasks) == count and sum(rows for _, rows, _ in note["tasks"]) == 100
    for place, task in enumerate(tasks):
        assert f"\x01ffq<{place}/{count}>ffq\x01".encode() in pickle.dumps(task)


@pytest.mark.parametrize("count", [3, 16])
def test_a_count_that_does_not_divide_the_partitions_is_refused(store: Store, count: int) -> None:
    with pytest.raises(Unsupported, match=f"has 8 partitions by k and .* as {count} partitions"):
        plan(store, PlanRequest(partitions=count))


def test_rows_that_are_not_placed_by_sparks_hash_have_no_keys(tmp_path: Path) -> None:
    store = write(tmp_path / "ffq", hash="ffq")
    assert plan(store, PlanRequest())[0]["keys"] == []
    with pytest.raises(Unsupported, match="8 partitions by no keys and cannot be read as 8"):
        plan(store, PlanRequest(partitions=8))


def test_filters_prune_partitions_and_keep_their_tasks(store: Store) -> None:
    equal = {"column": "k", "op": "in", "values": [42]}
    note, tasks = plan(store, PlanRequest(partitions=8, filters=(equal,)))
    assert len(tasks) == 8 and note["partitions_read"] == 1
    assert (note["parts"], note["parts_pruned"], note["partitions_pruned"]) == (1, 7, 7)
    assert sorted(parts for parts, _, _ in note["tasks"]) == [0] * 7 + [1]


def test_a_plan_that_prunes_everything_has_one_empty_task(tmp_path: Path) -> None:
    store = write(tmp_path / "known", statistics="k")
    below = {"column": "k", "op": "<", "values": [-1]}
    note, tasks = plan(store, PlanRequest(filters=(below,)))
    assert len(tasks) == 1 and note["tasks"] == [[0, 0, 0]] and note["parts_pruned"] == 8


def test_bounds_are_told_of_columns_with_statistics(tmp_path: Path) -> None:
    store = write(tmp_path / "known", statistics="k,v")
    note, _ = plan(store, PlanRequest(bounds=("k", "v", "no such column")))
    assert note["bounds"] == {"k": [0, 99, 0], "v": [1.0, 50.5, 0]}
    assert plan(store, PlanRequest())[0]["bounds"] == {}


def test_the_order_is_that_of_sorted_parts(tmp_path: Path, store: Store) -> None:
    sorted_store = write(tmp_path / "sorted", sortBy="k")
    assert plan(sorted_store, PlanRequest())[0]["order"] == ["k"]
    assert plan(store, PlanRequest())[0]["order"] == []


def test_a_merge_is_one_task_of_no_partitions(tmp_path: Path) -> None:
    store = write(tmp_path / "sorted", sortBy="k")
    note, tasks = plan(store, PlanRequest(), mergeBy="k", minTasks="4", targetPartitionBytes="64")
    assert (note["keys"], len(tasks)) == ([], 1)
    with pytest.raises(Unsupported, match="by no keys"):
        plan(store, PlanRequest(partitions=8), mergeBy="k")
