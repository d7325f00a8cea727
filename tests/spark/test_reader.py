"""The reader of a batch query: what it plans on the driver and reads in tasks, without Spark."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from layouts import write_options
from pyspark.sql.datasource import EqualTo, GreaterThan
from pyspark.sql.types import StructField, StructType

from ffq_spark.errors import ExchangeNotFound
from ffq_spark.exchange.scan.snapshot import take_snapshot
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.options import ReadOptions
from ffq_spark.shared_names import PlanField
from ffq_spark.spark.plan_note import PlanNote
from ffq_spark.spark.reader import ExchangeReader, PushingReader
from ffq_spark.spark.types import output_columns, spark_schema
from ffq_spark.store import Store


def append(root: str, *keys: int) -> int:
    """Append rows and return the number of the step."""
    options = write_options(keys=("k",), partitions=4, statistics=("k",))
    batch = pa.record_batch({"k": pa.array(keys, pa.int64()), "v": [str(k) for k in keys]})
    return write_batches(root, [batch], options=options).step


def schema_of(root: str, *columns: str) -> StructType:
    exchange = take_snapshot(Store(root), ReadOptions()).exchange
    return output_columns(spark_schema(exchange), columns, metadata=False)


def keys_read(reader: ExchangeReader, tasks: list[Any]) -> list[int]:
    """Read tasks as Spark does, which pickles each task and the reader before it plans."""
    copy: ExchangeReader = pickle.loads(pickle.dumps(reader))
    batches = [batch for task in tasks for batch in copy.read(pickle.loads(pickle.dumps(task)))]
    return sorted(key for batch in batches for key in batch.column("k").to_pylist())


def test_the_tasks_of_a_reader_hold_the_whole_snapshot(root: str) -> None:
    append(root, *range(20))
    append(root, *range(20, 30))
    reader = ExchangeReader(Store(root), ReadOptions(), schema_of(root, "k", "v"))
    assert keys_read(reader, reader.partitions()) == list(range(30))


def test_only_the_columns_that_spark_wants_are_read(root: str) -> None:
    append(root, 1, 2)
    reader = ExchangeReader(Store(root), ReadOptions(), schema_of(root, "v"))
    (task,) = reader.partitions()
    assert {name for batch in reader.read(task) for name in batch.schema.names} == {"v"}


def test_a_reader_sees_the_steps_that_its_dataframe_saw(root: str) -> None:
    newest = append(root, 1, 2)
    append(root, 3)
    schema = schema_of(root, "k")
    fixed = ExchangeReader(Store(root), ReadOptions(), schema, newest)
    assert keys_read(fixed, fixed.partitions()) == [1, 2]
    free = ExchangeReader(Store(root), ReadOptions(), schema)
    assert keys_read(free, free.partitions()) == [1, 2, 3]


def test_a_plan_that_the_plugin_requests_begins_with_its_note(root: str) -> None:
    append(root, *range(20))
    request = '{"partitions": 4, "order": [], "bounds": [], "report": false, "filters": []}'
    fields = list(schema_of(root, "k"))
    noted = StructField("k", fields[0].dataType, True, {PlanField.REQUEST: request})
    reader = ExchangeReader(Store(root), ReadOptions(), StructType([noted]))
    note, *tasks = reader.partitions()
    assert isinstance(note, PlanNote) and len(tasks) == 4
    assert keys_read(reader, tasks) == list(range(20))


@pytest.mark.parametrize("filters", [[EqualTo(("k",), 7)], [GreaterThan(("k",), 100)]])
def test_pushed_filters_prune_and_are_all_applied_again(root: str, filters: list[Any]) -> None:
    append(root, *range(20))
    reader = PushingReader(Store(root), ReadOptions(), schema_of(root, "k"))
    unpruned = sum(task.parts.num_rows for task in reader.partitions())  # type: ignore[attr-defined]
    assert list(reader.pushFilters(filters)) == filters
    tasks = reader.partitions()
    assert sum(task.parts.num_rows for task in tasks) < unpruned  # type: ignore[attr-defined]
    assert (7 in keys_read(reader, tasks)) == isinstance(filters[0], EqualTo)


def test_an_exchange_without_rows_has_one_task_without_rows(root: str) -> None:
    append(root)
    reader = ExchangeReader(Store(root), ReadOptions(), schema_of(root, "k"))
    (task,) = reader.partitions()
    assert keys_read(reader, [task]) == []


def test_a_reader_of_a_moved_root_fails_where_it_plans(root: str, tmp_path: Path) -> None:
    append(root, 1)
    schema = schema_of(root, "k")
    Path(root).rename(tmp_path / "moved")
    with pytest.raises(ExchangeNotFound):
        ExchangeReader(Store(root), ReadOptions(), schema).partitions()
