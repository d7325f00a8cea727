"""Min, max and number of nulls of each segment of a batch, for pruning."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ffq_spark.errors import KeyColumnMissing, UnsupportedType
from ffq_spark.format.manifest import stats_type
from ffq_spark.format.texts import array_of, as_binary, is_text

_AUTO_LIMIT = 32


def choose(schema: pa.Schema, wanted: Sequence[str]) -> list[pa.Field]:
    """The columns that get statistics.

    >>> schema = pa.schema([("k", pa.int64()), ("name", pa.string())])
    >>> [field.name for field in choose(schema, ["auto"])]
    ['k']
    """
    if list(wanted) == ["none"]:
        return []
    if list(wanted) == ["auto"]:
        return [field for field in schema if _is_fixed_width(field.type)][:_AUTO_LIMIT]
    if list(wanted) == ["all"]:
        return [field for field in schema if _is_ordered(field.type)]
    for name in wanted:
        if name not in schema.names:
            raise KeyColumnMissing(f"there is no column {name!r}", option="statistics")
        if not _is_ordered(schema.field(name).type):
            kind = schema.field(name).type
            message = f"column {name!r} of type {kind} has no min and max"
            raise UnsupportedType(message, option="statistics")
    return [schema.field(name) for name in wanted]


def segment_statistics(
    batch: pa.RecordBatch, starts: NDArray[np.int64], fields: Sequence[pa.Field]
) -> pa.StructArray:
    """Statistics of the segments that begin at `starts`, none of them empty."""
    columns = [_segments(batch.column(field.name), starts) for field in fields]
    return pa.StructArray.from_arrays(columns, fields=list(stats_type(fields)))


def merge(values: pa.ChunkedArray, groups: NDArray[np.int64], count: int) -> pa.StructArray:
    """Statistics of parts whose rows came in several segments; `groups` says which part's."""
    merged = [_merge_column(values, field, groups, count) for field in values.type]
    return pa.StructArray.from_arrays(merged, fields=list(values.type))


def _merge_column(
    values: pa.ChunkedArray, field: pa.Field, groups: NDArray[np.int64], count: int
) -> pa.StructArray:
    column = pc.struct_field(values, field.name)
    table = pa.table(
        {
            "group": groups,
            "min": _aggregable(pc.struct_field(column, "min")),
            "max": _aggregable(pc.struct_field(column, "max")),
            "nulls": pc.struct_field(column, "nulls"),
        }
    )
    # A float's bound may be unknown, which leaves the part without one; those of other types are
    # null only where a segment has no value.
    is_float = pa.types.is_floating(field.type.field(0).type)
    keep_unknown = pc.ScalarAggregateOptions(skip_nulls=not is_float)
    found = (
        table.group_by("group")
        .aggregate([("min", "min", keep_unknown), ("max", "max", keep_unknown), ("nulls", "sum")])
        .sort_by("group")
    )
    assert found.num_rows == count
    arrays = [
        found[name].combine_chunks().cast(part.type)
        for name, part in zip(("min_min", "max_max", "nulls_sum"), field.type, strict=True)
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(field.type))


def _aggregable(bounds: pa.ChunkedArray) -> pa.ChunkedArray:
    """Arrow groups every ordered type but durations, which are ordered as their integers."""
    return bounds.cast(pa.int64()) if pa.types.is_duration(bounds.type) else bounds


def _segments(column: pa.Array, starts: NDArray[np.int64]) -> pa.StructArray:
    kind = column.type
    nulls = _null_counts(column, starts)
    low, high = _fixed_width(column, starts) if _is_fixed_width(kind) else _any(column, starts)
    names = ["min", "max", "nulls"]
    return pa.StructArray.from_arrays([low, high, pa.array(nulls, pa.int64())], names=names)


def _null_counts(column: pa.Array, starts: NDArray[np.int64]) -> NDArray[np.int64]:
    if column.null_count == 0:
        return np.zeros(len(starts), np.int64)
    mask = pc.is_null(column).to_numpy(zero_copy_only=False)
    counts: NDArray[np.int64] = np.add.reduceat(mask, starts, dtype=np.int64)
    return counts


def _fixed_width(column: pa.Array, starts: NDArray[np.int64]) -> tuple[pa.Array, pa.Array]:
    kind = column.type
    if pa.types.is_floating(kind):
        filled = column.fill_null(float("nan")).to_numpy(zero_copy_only=False)
        low = np.fmin.reduceat(filled, starts)
        # fmax would hide NaN, which is above every number for Spark; nulls are no reason to.
        high = np.maximum.reduceat(_where_null(column, filled, -np.inf), starts)
        high = np.where(np.isneginf(high), np.nan, high).astype(filled.dtype)
        return pa.array(low, kind, from_pandas=True), pa.array(high, kind, from_pandas=True)
    storage = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[kind.bit_width]
    plain = column.view(storage)
    values = plain.fill_null(0).to_numpy(zero_copy_only=False)
    limits = np.iinfo(values.dtype)
    low = np.minimum.reduceat(_where_null(plain, values, limits.max), starts)
    high = np.maximum.reduceat(_where_null(plain, values, limits.min), starts)
    # Only a segment of nulls alone can have its bounds the wrong way round.
    empty = low > high
    return (
        pa.array(low, storage, mask=empty).view(kind),
        pa.array(high, storage, mask=empty).view(kind),
    )


def _where_null(column: pa.Array, values: NDArray[np.generic], fill: float) -> NDArray[np.generic]:
    if column.null_count == 0:
        return values
    mask = pc.is_null(column).to_numpy(zero_copy_only=False)
    return np.where(mask, np.asarray(fill, values.dtype), values)


def _any(column: pa.Array, starts: NDArray[np.int64]) -> tuple[pa.Array, pa.Array]:
    ends = [*starts[1:].tolist(), len(column)]
    # Strings as bytes, which have the same order: not all of Spark's strings are UTF-8.
    plain = column.cast(as_binary(column.type)) if is_text(column.type) else column
    found = [
        pc.min_max(plain.slice(start, end - start))
        for start, end in zip(starts.tolist(), ends, strict=True)
    ]
    low, high = ([pair[end].as_py() for pair in found] for end in ("min", "max"))
    return array_of(low, column.type), array_of(high, column.type)


def _is_fixed_width(kind: pa.DataType) -> bool:
    return (
        pa.types.is_signed_integer(kind)
        or pa.types.is_float32(kind)
        or pa.types.is_float64(kind)
        or (pa.types.is_temporal(kind) and not pa.types.is_interval(kind))
    )


def _is_ordered(kind: pa.DataType) -> bool:
    return (
        _is_fixed_width(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_string(kind)
        or pa.types.is_binary(kind)
    )
