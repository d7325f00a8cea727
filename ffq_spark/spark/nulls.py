"""Refuse nulls in columns that a user's schema declares NOT NULL."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from ffq_spark.errors import ExchangeMismatch


def refuse_nulls(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch, or raise if it has a null where its schema allows none.

    Spark would read such a null as a value. With the plugin all columns of a read are nullable.

    >>> refuse_nulls(pa.record_batch({"v": [1, None]})).num_rows
    2
    """
    for field, column in zip(batch.schema, batch.columns, strict=True):
        for name in _forbidden_nulls(column, field, field.name):
            message = f"column {name!r} holds a null, and the read's schema declares it NOT NULL"
            raise ExchangeMismatch(f"{message}; leave NOT NULL out")
    return batch


def _forbidden_nulls(values: pa.Array, field: pa.Field, name: str) -> Iterator[str]:
    """Yield the names of columns and fields with a forbidden null, ignoring children of nulls."""
    if not _forbids_nulls(field) or not len(values):
        return
    if values.null_count and not field.nullable:
        yield name
    dtype, present = field.type, values.drop_null()
    if pa.types.is_struct(dtype):
        for index, child in enumerate(dtype):
            yield from _forbidden_nulls(present.field(index), child, f"{name}.{child.name}")
    elif pa.types.is_map(dtype):
        entries = pa.ListArray.from_arrays(present.offsets, present.items)
        yield from _forbidden_nulls(entries.flatten(), dtype.item_field, f"{name}.value")
    elif pa.types.is_list(dtype):
        yield from _forbidden_nulls(present.flatten(), dtype.value_field, f"{name}.element")


def _forbids_nulls(field: pa.Field) -> bool:
    """Return whether a column or a nested field is not nullable. Map keys never are nullable."""
    dtype = field.type
    if pa.types.is_map(dtype):
        children = [dtype.item_field]
    else:
        children = [dtype.field(index) for index in range(dtype.num_fields)]
    return not field.nullable or any(map(_forbids_nulls, children))
