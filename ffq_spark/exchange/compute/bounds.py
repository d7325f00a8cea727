"""Compute the minimum, maximum and null count of columns from manifests alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ffq_spark.format.manifest import statistics_of
from ffq_spark.format.texts import as_binary, is_text


@dataclass(frozen=True)
class Bounds:
    """The bounds of one column; both ends are None if all values are null. Times are integers.

    Strings are compared as bytes, as Spark does.
    """

    least: Any
    greatest: Any
    nulls: int


def bounds(tables: Iterable[pa.Table], columns: Sequence[str]) -> dict[str, Bounds]:
    """Compute the bounds of the columns for which every part has exact ones.

    >>> stats = pa.array([{"k": {"min": 1, "max": 5, "nulls": 0}}])
    >>> bounds([pa.table({"rows": [3], "stats": stats})], ["k", "v"])
    {'k': Bounds(least=1, greatest=5, nulls=0)}
    """
    parts = [table for table in tables if table.num_rows]
    merged = {name: _merged([_of_table(table, name) for table in parts]) for name in columns}
    known = {name: of for name, of in merged.items() if of is not None}
    texts = {field.name for table in parts for field in _stats(table) if _is_text(field)}
    decoded = {name: _decoded(of) if name in texts else of for name, of in known.items()}
    return {name: of for name, of in decoded.items() if of is not None}


def _stats(table: pa.Table) -> Iterable[pa.Field]:
    return table.schema.field("stats").type if "stats" in table.schema.names else ()


def _is_text(field: pa.Field) -> bool:
    return is_text(field.type.field("min").type)


def _decoded(bounds: Bounds) -> Bounds | None:
    """Decode bounds to str; None if one of them is not UTF-8."""
    ends = (bounds.least, bounds.greatest)
    try:
        least, greatest = (None if end is None else end.decode() for end in ends)
    except UnicodeDecodeError:
        return None
    return Bounds(least, greatest, bounds.nulls)


def _of_table(table: pa.Table, name: str) -> Bounds | None:
    if name not in {field.name for field in _stats(table)}:
        return None
    column = statistics_of(table["stats"], name)
    low, high = (_plain(pc.struct_field(column, field)) for field in ("min", "max"))
    nulls = pc.struct_field(column, "nulls")
    if nulls.null_count:
        return None
    # A part with values but without bounds (NaN has none) makes the column's bounds unknown.
    valued = pc.less(nulls, table["rows"])
    low, high = low.filter(valued), high.filter(valued)
    if low.null_count or high.null_count or _has_zero(low) or _has_zero(high):
        return None
    total = pc.sum(nulls).as_py()
    try:
        return Bounds(pc.min(low).as_py(), pc.max(high).as_py(), total)
    except UnicodeDecodeError:
        # Spark's strings may not be valid UTF-8, which Python cannot represent.
        return None


def _plain(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Cast to types that Python can hold: its dates end in 9999, and its text must be UTF-8."""
    if is_text(values.type):
        return values.cast(as_binary(values.type))
    if not pa.types.is_temporal(values.type):
        return values
    return values.cast(pa.int32() if values.type.bit_width == 32 else pa.int64())


def _has_zero(values: pa.ChunkedArray) -> bool:
    """Return whether a bound is 0.0, which may stand for -0.0 and 0.0."""
    if not pa.types.is_floating(values.type):
        return False
    return bool(pc.any(pc.equal(values, 0.0)).as_py())


def _merged(bounds: Sequence[Bounds | None]) -> Bounds | None:
    known = [one for one in bounds if one is not None]
    if len(known) < len(bounds):
        return None
    low = [one.least for one in known if one.least is not None]
    high = [one.greatest for one in known if one.greatest is not None]
    nulls = sum(one.nulls for one in known)
    return Bounds(min(low, default=None), max(high, default=None), nulls)
