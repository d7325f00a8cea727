"""Sort Arrow columns in Spark's order: ascending, nulls first, NaN above every number."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ffq_spark.errors import UnsupportedType


def check_sortable(name: str, kind: pa.DataType) -> None:
    """Raise UnsupportedType for a column that cannot be sorted: a nested one, or one of nulls."""
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        raise UnsupportedType(f"column {name!r} of type {kind} cannot be sorted", option="sortBy")


def sort_columns(columns: Sequence[pa.Array]) -> list[pa.Array]:
    """Return columns whose plain ascending order is Spark's order of the given columns.

    Arrow orders nulls and NaN differently. An extra column before each column sorts nulls first,
    and another one sorts NaN last.
    """
    sort_keys: list[pa.Array] = []
    for column in columns:
        if column.null_count:
            sort_keys.append(pc.is_valid(column))
        if pa.types.is_floating(column.type):
            sort_keys.append(pc.is_nan(column))
        sort_keys.append(column)
    return sort_keys


def sort_indices(columns: Sequence[pa.Array]) -> pa.Array:
    """Return the row numbers in the order of these columns; the sort is stable.

    >>> sort_indices([pa.array([2.0, float("nan"), None, 1.0])]).to_pylist()
    [2, 3, 0, 1]
    """
    arrays = sort_columns(columns)
    names = [str(position) for position in range(len(arrays))]
    table = pa.table(arrays, names=names)
    keys = [(name, "ascending") for name in names]
    return pc.sort_indices(table, sort_keys=keys)
