"""Batch reads: planned on the driver from the log and the manifests, run as few large tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from ffq_spark.errors import ExchangeMismatch
from ffq_spark.exchange.attempts import CHUNKS_FIELD
from ffq_spark.exchange.consolidation import check_consolidates, read_rows, usable
from ffq_spark.exchange.pruning import Predicate
from ffq_spark.exchange.reader import METADATA_FIELDS
from ffq_spark.exchange.snapshot import PARTS_SCHEMA, Snapshot, take_snapshot
from ffq_spark.exchange.tasks import read_tasks
from ffq_spark.format import layout
from ffq_spark.format.conform import conform
from ffq_spark.format.records import ExchangeRecord
from ffq_spark.options import ReadOptions
from ffq_spark.spark.filters import predicates
from ffq_spark.spark.types import (
    METADATA_COLUMNS,
    output_columns,
    relaxed,
    spark_arrow_schema,
    spark_schema,
)
from ffq_spark.spark.worker import freeze_heap
from ffq_spark.store import Store

_PART_FIELDS = {field.name: field for field in (*PARTS_SCHEMA, CHUNKS_FIELD)}
_FOR_METADATA = frozenset({"query", "stage", "map_task", "attempt"})


class ReadTask(InputPartition):
    """One read task: its parts, and the exchange's record.

    Spark pickles the reader before it plans, so what planning finds out travels in here: as bytes,
    made when Spark pickles the task, so that of a million parts only one task's are held twice.
    """

    def __init__(self, parts: pa.RecordBatch, exchange: bytes) -> None:
        self._parts = parts
        self._exchange = exchange

    def __reduce__(self) -> tuple[Any, ...]:
        names = tuple(self._parts.schema.names)
        return _received, (self._parts.serialize().to_pybytes(), names, self._exchange)

    @property
    def parts(self) -> pa.Table:
        return pa.Table.from_batches([self._parts])

    @property
    def exchange(self) -> ExchangeRecord:
        return ExchangeRecord.decode(self._exchange, layout.EXCHANGE)


def _received(message: bytes, names: tuple[str, ...], exchange: bytes) -> ReadTask:
    schema = pa.schema([_PART_FIELDS[name] for name in names])
    return ReadTask(pa.ipc.read_record_batch(pa.py_buffer(message), schema), exchange)


def plan_tasks(
    snapshot: Snapshot,
    options: ReadOptions,
    schema: StructType,
    predicates: Sequence[Predicate] = (),
) -> list[InputPartition]:
    """A snapshot's rows as tasks; at least one, or Spark would call `read` with none."""
    _check_schema(snapshot, schema)
    check_consolidates(snapshot.exchange, options)
    parts = snapshot.parts(usable(predicates, snapshot.exchange, options), options.partitions)
    parts = parts.select([name for name in _needed(schema) if name in parts.schema.names])
    tasks = read_tasks(parts, options) or [pa.RecordBatch.from_pylist([], parts.schema)]
    exchange = snapshot.exchange.encode()
    return [ReadTask(batch, exchange) for batch in tasks]


def _needed(schema: StructType) -> list[str]:
    """What a task must know of its parts, to give these columns."""
    metadata = any(field.name in METADATA_COLUMNS.names for field in schema.fields)
    return [name for name in _PART_FIELDS if metadata or name not in _FOR_METADATA]


def _check_schema(snapshot: Snapshot, schema: StructType) -> None:
    there = output_columns(spark_schema(snapshot.exchange), (), metadata=True)
    for field in schema.fields:
        known = there[field.name].dataType if field.name in there.names else None
        if known is None or known != relaxed(field.dataType):
            has = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in there.fields)
            wanted = f"{field.name} {field.dataType.simpleString()}"
            raise ExchangeMismatch(f"{snapshot.store.url()} has no column {wanted}; it has {has}")


def read_task(
    store: Store, task: ReadTask, schema: StructType, options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """One task's rows, with the columns that Spark wants."""
    freeze_heap()
    wanted = spark_arrow_schema(schema)
    extra = {field.name for field in METADATA_FIELDS}
    columns = [name for name in wanted.names if name not in extra]
    metadata = len(columns) < len(wanted)
    batches = read_rows(
        store, task.parts, task.exchange, options, columns=columns, metadata=metadata
    )
    return (conform(batch, wanted) for batch in batches)


class ExchangeReader(DataSourceReader):
    """Reads one snapshot. `schema` is what Spark wants: all columns, or some of them."""

    def __init__(
        self, store: Store, options: ReadOptions, schema: StructType, newest: int | None = None
    ) -> None:
        self._store = store
        self._options = options
        self._schema = schema
        self._newest = newest
        self._predicates: list[Predicate] = []

    def partitions(self) -> list[InputPartition]:
        snapshot = take_snapshot(self._store, self._options, self._newest)
        return plan_tasks(snapshot, self._options, self._schema, self._predicates)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ReadTask)
        return read_task(self._store, partition, self._schema, self._options)


class PushingReader(ExchangeReader):
    """The reader where Spark pushes filters: it uses them to prune and leaves them all to Spark."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._predicates = predicates(filters)
        return filters
