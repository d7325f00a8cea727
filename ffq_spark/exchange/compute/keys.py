"""Look up rows by key: create predicates from a Python value and select the matching rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ffq_spark.errors import BadOption, UnsupportedType
from ffq_spark.exchange.compute.pruning import Predicate
from ffq_spark.format.records import ExchangeRecord
from ffq_spark.format.texts import array_of, is_text, text_value


def key_predicates(exchange: ExchangeRecord, key: Any) -> list[Predicate]:
    """Create a predicate for each key column.

    >>> exchange = ExchangeRecord.of(pa.schema([("k", pa.int64())]), ["k"], 8)
    >>> key_predicates(exchange, 5)
    [Predicate(column='k', op='in', values=(5,))]
    """
    if not exchange.keys:
        raise BadOption("this exchange has no keys to look up by", option="keys")
    values = _values(exchange.keys, key)
    schema = exchange.schema
    return [
        Predicate(name, "in", (_typed(name, schema.field(name).type, value),))
        for name, value in zip(exchange.keys, values, strict=True)
    ]


def _values(keys: Sequence[str], key: Any) -> Sequence[Any]:
    if isinstance(key, Mapping):
        if set(key) != set(keys):
            raise BadOption(f"the key must have the columns {', '.join(keys)}", option="keys")
        return [key[name] for name in keys]
    values: tuple[Any, ...] = key if isinstance(key, tuple) else (key,)
    if len(values) != len(keys):
        raise BadOption(f"the key must have {len(keys)} columns: {', '.join(keys)}", option="keys")
    return values


def _typed(name: str, kind: pa.DataType, value: Any) -> Any:
    if pa.types.is_nested(kind):
        message = f"rows cannot be looked up by column {name!r} of type {kind}"
        raise UnsupportedType(message, option="keys")
    try:
        if is_text(kind) and isinstance(value, str | bytes):
            return text_value(value)
        if isinstance(value, str) and not pa.types.is_string(kind):
            # Keys from the command line are strings.
            return pa.scalar(value).cast(kind).as_py()
        return pa.scalar(value, kind).as_py()
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        message = f"{value!r} is not of type {kind}, which column {name!r} has"
        raise BadOption(message, option="keys") from error


def matching_rows(batch: pa.RecordBatch, predicates: Sequence[Predicate]) -> pa.RecordBatch:
    """Select the rows that equal the key; null equals null, and NaN equals NaN.

    A row whose comparison gives null is left out.
    """
    mask = None
    for predicate in predicates:
        equal = _equals(batch.column(predicate.column), predicate.values[0])
        mask = equal if mask is None else pc.and_(mask, equal)
    return batch.filter(mask)


def _equals(column: pa.Array, value: Any) -> pa.Array:
    if value is None:
        return pc.is_null(column)
    if value != value:
        return pc.is_nan(column)
    return pc.equal(column, array_of([value], column.type)[0])
