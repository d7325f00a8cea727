"""Describe how the rows of a snapshot are partitioned and sorted, for Spark's planner."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

import pyarrow as pa

from ffq_spark.errors import NotSorted
from ffq_spark.exchange.scan.snapshot import Snapshot
from ffq_spark.format.schemas import require_column
from ffq_spark.options import ReadOptions

_MOST_COARSENED = 8
"""The most partitions of a step that a partitioned scan may combine to one."""


def partitioned_by(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the keys by which all rows are partitioned as Spark would, or none.

    Keys with floats return none: Spark groups by their normalised values, which are no column.
    Steps return none if they have too few partitions in common: a shuffle into more is faster.
    """
    exchange = snapshot.exchange
    if snapshot.raw is not None or exchange.hash != "spark":
        return ()
    if exchange.partitions * _MOST_COARSENED < max(snapshot.partition_counts, default=1):
        return ()
    kinds = [exchange.schema.field(key).type for key in exchange.keys]
    return exchange.keys if all(_is_plain(kind) for kind in kinds) else ()


def _is_plain(kind: pa.DataType) -> bool:
    return not (pa.types.is_nested(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind))


def sorted_by(snapshot: Snapshot, options: ReadOptions) -> tuple[str, ...]:
    """Return the columns by which all parts are sorted, in an order that the read keeps."""
    steps = snapshot.steps
    if snapshot.raw is not None or options.consolidate or options.metadata_columns:
        return ()
    if not len(steps) or (steps[-1].body.parts and not steps[-1].body.sort_by):
        return ()
    return common_prefix(step.body.sort_by for step in steps if step.body.parts)


def check_mergeable(snapshot: Snapshot, options: ReadOptions) -> None:
    """Refuse a read with `mergeBy` if some step of the snapshot is not sorted by its columns."""
    by = options.merge_by
    for name in by:
        require_column(snapshot.exchange.schema, name, "mergeBy")
    if by and snapshot.raw is not None:
        message = "only steps of the log record by what their parts are sorted"
        raise NotSorted(message, option="mergeBy")
    for step in snapshot.steps if by else ():
        order = step.body.sort_by
        if step.body.parts and order[: len(by)] != by:
            stored = f"is sorted by {', '.join(order)}" if order else "is not sorted"
            message = f"step {step.step} {stored}, and mergeBy is {', '.join(by)}"
            raise NotSorted(message, option="mergeBy")


def common_prefix(orders: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the longest order that all orders begin with.

    >>> common_prefix([("a", "b", "c"), ("a", "b"), ("a", "b", "d")])
    ('a', 'b')
    >>> common_prefix([])
    ()
    """
    columns = zip(*orders, strict=False)
    return tuple(names[0] for names in takewhile(lambda names: len(set(names)) == 1, columns))
