"""Spark's order of rows in Arrow terms: ascending, nulls first, NaN above every number."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ffq_spark.errors import UnsupportedType


def check_sortable(name: str, kind: pa.DataType) -> None:
    """Refuse a column type that has no order here."""
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        raise UnsupportedType(f"column {name!r} of type {kind} cannot be sorted", option="sortBy")


def sort_columns(columns: Sequence[pa.Array]) -> list[pa.Array]:
    """Columns whose plain ascending order is Spark's order of the given ones.

    Arrow's places for nulls and NaN differ; own columns put the ones first and the others last.
    """
    found: list[pa.Array] = []
    for column in columns:
        if column.null_count:
            found.append(pc.is_valid(column))
        if pa.types.is_floating(column.type):
            found.append(pc.is_nan(column))
        found.append(column)
    return found


def sort_indices(columns: Sequence[pa.Array]) -> pa.Array:
    """The order of rows by these columns; equal rows keep their places.

    >>> sort_indices([pa.array([2.0, float("nan"), None, 1.0])]).to_pylist()
    [2, 3, 0, 1]
    """
    arrays = sort_columns(columns)
    names = [str(position) for position in range(len(arrays))]
    table = pa.table(arrays, names=names)
    keys = [(name, "ascending") for name in names]
    return pc.sort_indices(table, sort_keys=keys)
