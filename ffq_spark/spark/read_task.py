"""Plan the read tasks of a scan for Spark, and run one in a worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from ffq_spark.errors import ExchangeMismatch
from ffq_spark.exchange.attempts.stored import CHUNKS_FIELD
from ffq_spark.exchange.compute.hash_shards import HashShard
from ffq_spark.exchange.compute.pruning import Predicate
from ffq_spark.exchange.compute.sorting import sort_rows
from ffq_spark.exchange.read.rows import check_readable, prunable, read_rows
from ffq_spark.exchange.scan.partitioning import check_mergeable
from ffq_spark.exchange.scan.pruned_parts import READ_SCHEMA
from ffq_spark.exchange.scan.snapshot import Snapshot
from ffq_spark.exchange.scan.tasks import read_tasks
from ffq_spark.format import paths
from ffq_spark.format.records import ExchangeRecord
from ffq_spark.options import ReadOptions
from ffq_spark.spark.nulls import refuse_nulls
from ffq_spark.spark.plan_note import report
from ffq_spark.spark.types import (
    nullable,
    output_columns,
    spark_arrow_schema,
    spark_schema,
)
from ffq_spark.spark.worker import freeze_heap
from ffq_spark.store import ReadTotals, Store

_PART_FIELDS = {field.name: field for field in (*READ_SCHEMA, CHUNKS_FIELD)}
_FOR_METADATA = frozenset({"query", "stage", "map_task", "attempt"})
_FOR_SOME_COLUMNS = frozenset({"tail_bytes", "tail_checksum"})


class ReadTask(InputPartition):
    """The parts of one read task, and the exchange's record.

    Spark pickles the reader before it plans, so the plan travels in the tasks. A task is encoded
    when Spark pickles it, so that of a million parts only one task's are held twice.
    """

    def __init__(
        self,
        parts: pa.RecordBatch,
        exchange: bytes,
        order: tuple[str, ...] = (),
        sort_by: tuple[str, ...] = (),
        reports: bool = False,
        shard: HashShard | None = None,
        *,
        place: bytes = b"",
    ) -> None:
        self.parts = parts
        self.exchange = exchange
        """The exchange's record, encoded."""
        self.order = order
        """The order in which rows come; all parts are sorted by it."""
        self.sort_by = sort_by
        """The order in which rows come after the task has sorted them."""
        self._place = place
        self.reports = reports
        """Whether the plugin expects a report at the end."""
        self.shard = shard
        """The shard whose rows the task returns; None if it returns all rows of its parts."""

    def __reduce__(self) -> tuple[Any, ...]:
        names = tuple(self.parts.schema.names)
        message = self.parts.serialize()
        known = (self.exchange, self.order, self.sort_by, self.reports, self.shard)
        # The JVM looks for the place in these bytes from their beginning.
        return _received, (self._place, message, names, *known)


def _received(place: bytes, message: pa.Buffer, names: tuple[str, ...], *known: Any) -> ReadTask:
    schema = pa.schema([_PART_FIELDS[name] for name in names])
    return ReadTask(pa.ipc.read_record_batch(message, schema), *known, place=place)


def plan_tasks(
    snapshot: Snapshot,
    options: ReadOptions,
    schema: StructType,
    predicates: Sequence[Predicate] = (),
) -> list[InputPartition]:
    """Divide a snapshot into tasks, at least one: without any, Spark calls `read` with None."""
    parts = task_parts(snapshot, options, schema, predicates)
    return [*size_tasks(parts, snapshot.exchange, options)]


def size_tasks(
    parts: pa.Table, exchange: ExchangeRecord, options: ReadOptions, *, reports: bool = False
) -> list[ReadTask]:
    """Divide parts into tasks of about the target size, at least one, which may be empty."""
    record = exchange.encode()
    planned = [
        ReadTask(task.parts, record, reports=reports, shard=task.kept)
        for task in read_tasks(parts, options, exchange.partitions)
    ]
    none = pa.RecordBatch.from_pylist([], parts.schema)
    return planned or [ReadTask(none, record, reports=reports)]


def task_parts(
    snapshot: Snapshot,
    options: ReadOptions,
    schema: StructType,
    predicates: Sequence[Predicate],
) -> pa.Table:
    """List the parts that a read needs, with what a task must know of each."""
    _check_schema(snapshot, schema)
    check_readable(snapshot.exchange, options)
    check_mergeable(snapshot, options)
    parts = snapshot.parts(prunable(predicates, snapshot.exchange, options), options.partitions)
    own = snapshot.exchange.schema
    metadata = set(schema.names).difference(own.names)
    unneeded = {"modulus"} if metadata else {"modulus", *_FOR_METADATA}
    if len(schema.names) - len(metadata) == len(own):
        unneeded |= _FOR_SOME_COLUMNS
    known = [name for name in _PART_FIELDS if name not in unneeded]
    return parts.select([name for name in known if name in parts.schema.names])


def _check_schema(snapshot: Snapshot, schema: StructType) -> None:
    columns = output_columns(spark_schema(snapshot.exchange), (), metadata=True)
    for field in schema.fields:
        known = columns[field.name].dataType if field.name in columns.names else None
        if known is None or known != nullable(field.dataType):
            has = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in columns.fields)
            wanted = f"{field.name} {field.dataType.simpleString()}"
            raise ExchangeMismatch(f"{snapshot.store.url()} has no column {wanted}; it has {has}")


def read_task(
    store: Store, task: ReadTask, schema: StructType, options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Read the rows of a task with the columns and types that Spark wants."""
    totals = ReadTotals()
    batches = read_rows(
        store,
        pa.Table.from_batches([task.parts]),
        ExchangeRecord.decode(task.exchange, paths.EXCHANGE),
        options,
        spark_arrow_schema(schema),
        order=task.order,
        shard=task.shard,
        totals=totals,
    )
    try:
        for batch in sort_rows(batches, task.sort_by) if task.sort_by else batches:
            yield refuse_nulls(batch)
        if task.reports:
            report(totals)
    finally:
        # This also runs when Spark wants no more rows.
        freeze_heap()
