"""Find the partitions and parts that a filter leaves out because no row can match."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ffq_spark.format.hashing import KeyHashes, key_hashes
from ffq_spark.format.manifest import statistics_of
from ffq_spark.format.records import ExchangeRecord
from ffq_spark.format.texts import array_of

_MAX_COMBINATIONS = 4096
_FEW_VALUES = 64


@dataclass(frozen=True)
class Predicate:
    """A condition on one column: `in`, `<`, `<=`, `>` or `>=`. A row must meet all predicates.

    `in` also expresses equality; None among its values means that null matches. A string that is
    not UTF-8 is given as bytes.
    """

    column: str
    op: str
    values: tuple[Any, ...]


def matching_hashes(exchange: ExchangeRecord, predicates: Iterable[Predicate]) -> KeyHashes | None:
    """Return the hashes that the keys of matching rows can have, or None if they can have any.

    >>> exchange = ExchangeRecord.of(pa.schema([("k", pa.int64())]), ["k"], 64)
    >>> matching_hashes(exchange, [Predicate("k", "in", (1, 2))]).partitions(64).tolist()
    [29, 24]
    """
    if not exchange.keys:
        return None
    allowed: dict[str, list[Any]] = {}
    for predicate in predicates:
        if predicate.op == "in":
            fewest = allowed.get(predicate.column)
            if fewest is None or len(predicate.values) < len(fewest):
                allowed[predicate.column] = list(predicate.values)
    if any(key not in allowed for key in exchange.keys):
        return None
    schema = exchange.schema
    candidates = [
        _spellings(allowed[key], schema.field(key).type, exchange.hash) for key in exchange.keys
    ]
    if np.prod([float(len(values)) for values in candidates]) > _MAX_COMBINATIONS:
        return None
    rows = list(itertools.product(*candidates))
    try:
        columns = [
            array_of([row[position] for row in rows], schema.field(key).type)
            for position, key in enumerate(exchange.keys)
        ]
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    return key_hashes(columns, exchange.hash)


def _spellings(values: list[Any], kind: pa.DataType, hash: str) -> list[Any]:
    """Add equal values with other bits: FFQ hashes the bits of a float, Spark its value."""
    if hash == "spark" or not pa.types.is_floating(kind):
        return values
    if any(value != value for value in values):
        return [None] * (_MAX_COMBINATIONS + 1)
    return [*values, 0.0, -0.0] if any(value == 0 for value in values) else values


def may_match(manifest: pa.Table, predicates: Sequence[Predicate]) -> NDArray[np.bool_]:
    """Return for each part whether its statistics allow a row that meets all predicates."""
    keep = np.ones(manifest.num_rows, np.bool_)
    if "stats" not in manifest.schema.names or not manifest.num_rows:
        return keep
    stats = manifest["stats"].combine_chunks()
    for predicate in predicates:
        if stats.type.get_field_index(predicate.column) < 0:
            continue
        bounds = statistics_of(stats, predicate.column)
        # A part without these statistics may hold any value.
        known = bounds.is_valid() if bounds.null_count else None
        try:
            allowed = _allows(bounds if known is None else bounds.filter(known), predicate)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            continue
        if known is None:
            keep &= allowed
        else:
            keep[known.to_numpy(zero_copy_only=False)] &= allowed
    return keep


def _allows(bounds: pa.StructArray, predicate: Predicate) -> NDArray[np.bool_]:
    # No struct is null here, so no validity hides its children.
    low, high, nulls = (bounds.field(name) for name in ("min", "max", "nulls"))
    if predicate.op == "in":
        values = [value for value in predicate.values if value is not None]
        matches = np.zeros(len(bounds), np.bool_)
        if len(values) < len(predicate.values):
            matches |= pc.greater(nulls, 0).to_numpy(False)
        for least, greatest in _spans(values):
            matches |= _at_most(low, greatest) & _at_least(high, least)
        return matches
    (value,) = predicate.values
    if predicate.op in ("<", "<="):
        return _at_most(low, value, strict=predicate.op == "<")
    return _at_least(high, value, strict=predicate.op == ">")


def _spans(values: list[Any]) -> list[tuple[Any, Any]]:
    """Return each value as a span; many values become one span from the least to the greatest."""
    if len(values) <= _FEW_VALUES or any(value != value for value in values):
        return [(value, value) for value in values]
    return [(min(values), max(values))]


def _at_most(bound: pa.Array, value: Any, *, strict: bool = False) -> NDArray[np.bool_]:
    return _compare(pc.less if strict else pc.less_equal, bound, value)


def _at_least(bound: pa.Array, value: Any, *, strict: bool = False) -> NDArray[np.bool_]:
    return _compare(pc.greater if strict else pc.greater_equal, bound, value)


def _compare(compare: Any, bound: pa.Array, value: Any) -> NDArray[np.bool_]:
    if value != value:
        # Spark sorts NaN above every number; Arrow's comparisons are false.
        return np.ones(len(bound), np.bool_)
    compared = compare(bound, array_of([value], bound.type)[0])
    result: NDArray[np.bool_] = compared.fill_null(True).to_numpy(zero_copy_only=False)
    return result
