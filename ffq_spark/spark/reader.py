"""Batch reads: planned on the driver from the log and the manifests, run as few large tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from ffq_spark.exchange.compute.pruning import Predicate
from ffq_spark.exchange.scan.snapshot import take_snapshot
from ffq_spark.options import ReadOptions
from ffq_spark.spark.filters import predicates
from ffq_spark.spark.own_plan import own_plan
from ffq_spark.spark.plan_note import requested
from ffq_spark.spark.read_task import ReadTask, plan_tasks, read_task
from ffq_spark.store import Store


class ExchangeReader(DataSourceReader):
    """The reader of one snapshot; `schema` has the columns that Spark wants."""

    def __init__(
        self, store: Store, options: ReadOptions, schema: StructType, newest: int | None = None
    ) -> None:
        self._store = store
        self._options = options
        self._schema = schema
        self._newest = newest
        self._predicates: list[Predicate] = []

    def partitions(self) -> list[InputPartition]:
        """Plan the read tasks of the snapshot, as the plugin asks for them or by size."""
        snapshot = take_snapshot(self._store, self._options, self._newest)
        request = requested(self._schema)
        if request is None:
            return plan_tasks(snapshot, self._options, self._schema, self._predicates)
        return own_plan(snapshot, self._options, self._schema, request)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of one task in a worker."""
        assert isinstance(partition, ReadTask)
        return read_task(self._store, partition, self._schema, self._options)


class PushingReader(ExchangeReader):
    """A reader to which Spark pushes filters: they prune, and Spark applies them again."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Prune by filters, and return all of them for Spark to apply."""
        self._predicates = predicates(filters)
        return filters
