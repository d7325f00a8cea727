"""Batch reads: planned on the driver from the log and the manifests, run as few large tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from ffq_spark.errors import ExchangeMismatch
from ffq_spark.exchange.pruning import Predicate
from ffq_spark.exchange.reader import METADATA_FIELDS, read_parts
from ffq_spark.exchange.snapshot import Snapshot, take_snapshot
from ffq_spark.exchange.tasks import read_tasks
from ffq_spark.format.conform import conform
from ffq_spark.options import ReadOptions
from ffq_spark.spark.filters import predicates
from ffq_spark.spark.types import output_columns, relaxed, spark_arrow_schema, spark_schema
from ffq_spark.spark.worker import freeze_heap
from ffq_spark.store import Store


class ReadTask(InputPartition):
    """One read task: its parts, and the schema they were written with.

    Spark pickles the reader before it plans, so what planning finds out travels in here; as Arrow
    bytes, so that a million parts stay small.
    """

    def __init__(self, parts: pa.Table, schema: pa.Schema) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, parts.schema) as writer:
            writer.write_table(parts.combine_chunks())
        self._parts = sink.getvalue().to_pybytes()
        self._schema = schema.serialize().to_pybytes()

    @property
    def parts(self) -> pa.Table:
        return pa.ipc.open_stream(self._parts).read_all()

    @property
    def schema(self) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(self._schema))


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
        self._check_schema(snapshot)
        schema = snapshot.exchange.schema
        parts = snapshot.parts(self._predicates, self._options.partitions)
        tasks = read_tasks(parts, self._options)
        # Without any task Spark would call `read` with none.
        return [ReadTask(table, schema) for table in tasks or [parts.slice(0, 0)]]

    def _check_schema(self, snapshot: Snapshot) -> None:
        there = output_columns(spark_schema(snapshot.exchange), (), metadata=True)
        for field in self._schema.fields:
            known = there[field.name].dataType if field.name in there.names else None
            if known is None or known != relaxed(field.dataType):
                has = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in there.fields)
                wanted = f"{field.name} {field.dataType.simpleString()}"
                raise ExchangeMismatch(f"{self._store.url()} has no column {wanted}; it has {has}")

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        freeze_heap()
        assert isinstance(partition, ReadTask)
        wanted = spark_arrow_schema(self._schema)
        extra = {field.name for field in METADATA_FIELDS}
        columns = [name for name in wanted.names if name not in extra]
        batches = read_parts(
            self._store,
            partition.parts,
            partition.schema,
            columns=columns,
            metadata=len(columns) < len(wanted),
            verify=self._options.verify,
        )
        return (conform(batch, wanted) for batch in batches)


class PushingReader(ExchangeReader):
    """The reader where Spark pushes filters: it uses them to prune and leaves them all to Spark."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._predicates = predicates(filters)
        return filters
