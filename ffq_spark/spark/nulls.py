"""Nulls in columns that a user's schema calls NOT NULL."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from ffq_spark.errors import ExchangeMismatch


def refuse_nulls(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch, or raise if it has a null where its schema allows none.

    Spark would take such a null for a value. With the plugin no schema of a read forbids nulls.

    >>> refuse_nulls(pa.record_batch({"v": [1, None]})).num_rows
    2
    """
    for field, column in zip(batch.schema, batch.columns, strict=True):
        for name in _forbidden_nulls(column, field, field.name):
            message = f"column {name!r} holds a null, and the read's schema declares it NOT NULL"
            raise ExchangeMismatch(f"{message}; leave NOT NULL out")
    return batch


def _forbidden_nulls(values: pa.Array, field: pa.Field, name: str) -> Iterator[str]:
    """Yield the columns and fields that hold a forbidden null; what a null contains is no value."""
    if not _forbids_nulls(field) or not len(values):
        return
    if values.null_count and not field.nullable:
        yield name
    kind, there = field.type, values.drop_null()
    if pa.types.is_struct(kind):
        for place, child in enumerate(kind):
            yield from _forbidden_nulls(there.field(place), child, f"{name}.{child.name}")
    elif pa.types.is_map(kind):
        entries = pa.ListArray.from_arrays(there.offsets, there.items)
        yield from _forbidden_nulls(entries.flatten(), kind.item_field, f"{name}.value")
    elif pa.types.is_list(kind):
        yield from _forbidden_nulls(there.flatten(), kind.value_field, f"{name}.element")


def _forbids_nulls(field: pa.Field) -> bool:
    """Whether the column or a field inside may not be null; keys of maps never are."""
    kind = field.type
    if pa.types.is_map(kind):
        inside = [kind.item_field]
    else:
        inside = [kind.field(place) for place in range(kind.num_fields)]
    return not field.nullable or any(map(_forbids_nulls, inside))
