"""Read the rows of a planned read's parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from ffq_spark.exchange.compute.keys import matching_rows
from ffq_spark.exchange.read.bounded import Limits, read_bounded
from ffq_spark.exchange.read.rows import read_rows
from ffq_spark.service.server.read_plans import Plan


def plan_rows(
    plan: Plan, parts: pa.Table, limits: Limits, skip: int = 0
) -> Iterator[pa.RecordBatch]:
    """Read the rows of a plan's parts after the first `skip`, always in the same order."""
    columns = _columns_to_read(plan)
    if plan.options.consolidate:
        options = replace(plan.options, credits=limits.part_bytes, verify="full")
        batches = read_rows(plan.store, parts, plan.exchange, options, columns=columns)
    else:
        batches = read_bounded(
            plan.store,
            parts,
            plan.exchange.schema,
            limits,
            columns=columns,
            metadata=plan.options.metadata_columns,
        )
    if plan.predicates:
        names = plan.schema.names
        batches = (matching_rows(batch, plan.predicates).select(names) for batch in batches)
    return _skip_rows(batches, skip)


def _columns_to_read(plan: Plan) -> list[str] | None:
    """Return the selected columns and those that filter rows, or None for all columns."""
    columns = plan.options.columns
    if not columns:
        return None
    keys = [predicate.column for predicate in plan.predicates]
    return [*columns, *(name for name in keys if name not in columns)]


def _skip_rows(batches: Iterable[pa.RecordBatch], skip: int) -> Iterator[pa.RecordBatch]:
    """Drop the first `skip` rows.

    >>> batches = [pa.record_batch({"a": [1, 2]}), pa.record_batch({"a": [3, 4]})]
    >>> [batch["a"].to_pylist() for batch in _skip_rows(batches, 3)]
    [[4]]
    """
    for batch in batches:
        left = max(0, batch.num_rows - skip)
        skip -= batch.num_rows - left
        if left:
            yield batch.slice(batch.num_rows - left)
