"""Plan one scan as the plugin requests it: a note, then the tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from ffq_spark.errors import Unsupported
from ffq_spark.exchange.compute.bounds import bounds
from ffq_spark.exchange.scan.partitioning import partitioned_by, sorted_by
from ffq_spark.exchange.scan.snapshot import Snapshot
from ffq_spark.exchange.scan.tasks import partition_tasks
from ffq_spark.options import ReadOptions
from ffq_spark.shared_names import Metric, PlanField
from ffq_spark.spark.conditions import decode_conditions
from ffq_spark.spark.plan_note import PlanNote, PlanRequest, place_mark
from ffq_spark.spark.read_task import ReadTask, size_tasks, task_parts
from ffq_spark.spark.types import spark_arrow_schema, spark_schema


def own_plan(
    snapshot: Snapshot,
    options: ReadOptions,
    schema: StructType,
    request: PlanRequest,
) -> list[InputPartition]:
    """Plan a scan for the plugin; a plan by partitions has one task for each, in their order."""
    predicates = decode_conditions(request.filters, snapshot.exchange)
    parts = task_parts(snapshot, options, schema, predicates)
    # A merge is one task, so its rows are not partitioned.
    keys = () if options.merge_by else _spark_keys(snapshot)
    order = sorted_by(snapshot, options)
    exchange = snapshot.exchange.encode()
    tasks: list[ReadTask]
    if request.partitions:
        count = request.partitions
        if not keys or snapshot.exchange.partitions % count:
            written = f"{snapshot.exchange.partitions} partitions by {', '.join(keys) or 'no keys'}"
            message = (
                f"{snapshot.store.url()} has {written} and cannot be read as {count} partitions"
            )
            raise Unsupported(message)
        wanted = request.order
        merged, sort_by = (wanted, ()) if order[: len(wanted)] == wanted else ((), wanted)
        tasks = [
            ReadTask(
                batch, exchange, merged, sort_by, request.report, place=place_mark(place, count)
            )
            for place, batch in enumerate(partition_tasks(parts, count))
        ]
    else:
        tasks = size_tasks(parts, snapshot.exchange, options, reports=request.report)
    note = {
        PlanField.KEYS: list(keys),
        PlanField.ORDER: list(order),
        PlanField.PARTITIONS: snapshot.exchange.partitions,
        PlanField.TASKS: [_sizes(task.parts) for task in tasks],
        **_totals(snapshot, parts),
        # The rows of a Z-set are known only after its weights are summed.
        PlanField.COUNTS: not options.consolidate,
        PlanField.BOUNDS: {} if options.consolidate else _bounds(snapshot, options, request.bounds),
    }
    return [PlanNote.of(note), *tasks]


def _spark_keys(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the keys if Spark's hash of the columns that it reads gives the written partitions."""
    keys = partitioned_by(snapshot)
    if not keys:
        return ()
    seen = spark_arrow_schema(spark_schema(snapshot.exchange))
    written = snapshot.exchange.schema
    return keys if all(seen.field(k).type == written.field(k).type for k in keys) else ()


def _bounds(
    snapshot: Snapshot, options: ReadOptions, columns: Sequence[str]
) -> dict[str, list[Any]]:
    """Compute minimum, maximum and null count of columns that Spark reads as they were written."""
    if not columns or snapshot.raw is not None:
        return {}
    seen = spark_arrow_schema(spark_schema(snapshot.exchange))
    written = snapshot.exchange.schema
    known = [name for name in columns if name in written.names]
    same = [name for name in known if seen.field(name).type == written.field(name).type]
    known_bounds = bounds(snapshot.part_tables(options.partitions), same)
    return {
        name: [_json_value(of.least), _json_value(of.greatest), of.nulls]
        for name, of in known_bounds.items()
        if _has_json(of.least) and _has_json(of.greatest)
    }


def _has_json(value: Any) -> bool:
    return not isinstance(value, bytes) and (not isinstance(value, float) or math.isfinite(value))


def _json_value(value: Any) -> Any:
    return str(value) if isinstance(value, Decimal) else value


def _sizes(parts: pa.RecordBatch) -> list[int]:
    """Count the parts, rows and bytes of a task."""
    rows, size = (int(np.sum(parts.column(name).to_numpy())) for name in ("rows", "bytes"))
    return [parts.num_rows, rows, size]


def _totals(snapshot: Snapshot, parts: pa.Table) -> dict[str, Any]:
    read = len(np.unique(snapshot.places(parts)))
    return {
        Metric.ROWS: int(np.sum(parts["rows"].to_numpy())),
        Metric.BYTES: int(np.sum(parts["bytes"].to_numpy())),
        Metric.PARTS: parts.num_rows,
        Metric.PARTS_PRUNED: snapshot.num_parts - parts.num_rows,
        Metric.PARTITIONS_READ: read,
        Metric.PARTITIONS_PRUNED: snapshot.exchange.partitions - read,
        Metric.REPLACED: 0 if snapshot.newest is None else snapshot.newest - len(snapshot.steps),
    }
