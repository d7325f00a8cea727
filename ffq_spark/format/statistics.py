"""Compute the minimum, maximum and number of nulls of columns, for pruning."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ffq_spark.errors import KeyColumnMissing, UnsupportedType
from ffq_spark.format.manifest import statistics_of, stats_type
from ffq_spark.format.texts import array_of, as_binary, is_text

_AUTO_LIMIT = 32


def choose(schema: pa.Schema, wanted: Sequence[str]) -> list[pa.Field]:
    """Choose the columns that get statistics, by the option `statistics`.

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
            message = f"the schema has no column {name!r}"
            raise KeyColumnMissing(message, option="statistics")
        if not _is_ordered(schema.field(name).type):
            kind = schema.field(name).type
            message = f"values of column {name!r} of type {kind} have no minimum and maximum"
            raise UnsupportedType(message, option="statistics")
    return [schema.field(name) for name in wanted]


def segment_statistics(
    batch: pa.RecordBatch, starts: NDArray[np.int64], fields: Sequence[pa.Field]
) -> pa.StructArray:
    """Compute the statistics of the segments that begin at `starts`; no segment may be empty."""
    columns = [_segments(batch.column(field.name), starts) for field in fields]
    return pa.StructArray.from_arrays(columns, fields=list(stats_type(fields)))


def merge(values: pa.ChunkedArray, groups: NDArray[np.int64], count: int) -> pa.StructArray:
    """Merge the statistics of segments into those of parts; `groups` maps segments to parts."""
    merged = [_merge_column(values, field, groups, count) for field in values.type]
    return pa.StructArray.from_arrays(merged, fields=list(values.type))


def _merge_column(
    values: pa.ChunkedArray, field: pa.Field, groups: NDArray[np.int64], count: int
) -> pa.StructArray:
    column = statistics_of(values, field.name)
    table = pa.table(
        {
            "group": groups,
            "min": _aggregable(pc.struct_field(column, "min")),
            "max": _aggregable(pc.struct_field(column, "max")),
            "nulls": pc.struct_field(column, "nulls"),
        }
    )
    # If a float's bound is unknown in one segment, it is unknown for the part. Bounds of other
    # types are null only for segments without a value.
    is_float = pa.types.is_floating(field.type.field(0).type)
    keep_unknown = pc.ScalarAggregateOptions(skip_nulls=not is_float)
    merged = (
        table.group_by("group")
        .aggregate([("min", "min", keep_unknown), ("max", "max", keep_unknown), ("nulls", "sum")])
        .sort_by("group")
    )
    assert merged.num_rows == count
    arrays = [
        merged[name].combine_chunks().cast(part.type)
        for name, part in zip(("min_min", "max_max", "nulls_sum"), field.type, strict=True)
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(field.type))


def _aggregable(bounds: pa.ChunkedArray) -> pa.ChunkedArray:
    """Cast durations to integers of the same order, because Arrow cannot aggregate durations."""
    return bounds.cast(pa.int64()) if pa.types.is_duration(bounds.type) else bounds


def _segments(column: pa.Array, starts: NDArray[np.int64]) -> pa.StructArray:
    kind = column.type
    nulls = _null_counts(column, starts)
    bounds = _fixed_width_bounds if _is_fixed_width(kind) else _bounds
    low, high = bounds(column, starts)
    names = ["min", "max", "nulls"]
    return pa.StructArray.from_arrays([low, high, pa.array(nulls, pa.int64())], names=names)


def _null_counts(column: pa.Array, starts: NDArray[np.int64]) -> NDArray[np.int64]:
    if column.null_count == 0:
        return np.zeros(len(starts), np.int64)
    mask = pc.is_null(column).to_numpy(zero_copy_only=False)
    counts: NDArray[np.int64] = np.add.reduceat(mask, starts, dtype=np.int64)
    return counts


def _fixed_width_bounds(column: pa.Array, starts: NDArray[np.int64]) -> tuple[pa.Array, pa.Array]:
    kind = column.type
    if pa.types.is_floating(kind):
        filled = column.fill_null(float("nan")).to_numpy(zero_copy_only=False)
        low = np.fmin.reduceat(filled, starts)
        # Not fmax, which ignores NaN: Spark orders NaN above every number. Nulls are filled.
        high = np.maximum.reduceat(_where_null(column, filled, -np.inf), starts)
        high = np.where(np.isneginf(high), np.nan, high).astype(filled.dtype)
        return pa.array(low, kind, from_pandas=True), pa.array(high, kind, from_pandas=True)
    storage = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[kind.bit_width]
    plain = column.view(storage)
    values = plain.fill_null(0).to_numpy(zero_copy_only=False)
    limits = np.iinfo(values.dtype)
    low = np.minimum.reduceat(_where_null(plain, values, limits.max), starts)
    high = np.maximum.reduceat(_where_null(plain, values, limits.min), starts)
    # The minimum exceeds the maximum only in a segment that holds nothing but nulls.
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


def _bounds(column: pa.Array, starts: NDArray[np.int64]) -> tuple[pa.Array, pa.Array]:
    ends = [*starts[1:].tolist(), len(column)]
    # Compare strings as bytes, which have the same order: Spark's strings may not be UTF-8.
    plain = column.cast(as_binary(column.type)) if is_text(column.type) else column
    pairs = [
        pc.min_max(plain.slice(start, end - start))
        for start, end in zip(starts.tolist(), ends, strict=True)
    ]
    low, high = ([pair[end].as_py() for pair in pairs] for end in ("min", "max"))
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
