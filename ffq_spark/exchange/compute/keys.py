"""Looking up rows by key: from a Python value to predicates, and to the rows that match."""

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
    """A predicate for each key column.

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
            raise BadOption(f"the key has the columns {', '.join(keys)}", option="keys")
        return [key[name] for name in keys]
    values: tuple[Any, ...] = key if isinstance(key, tuple) else (key,)
    if len(values) != len(keys):
        raise BadOption(f"the key has {len(keys)} columns: {', '.join(keys)}", option="keys")
    return values


def _typed(name: str, kind: pa.DataType, value: Any) -> Any:
    if pa.types.is_nested(kind):
        raise UnsupportedType(f"no look-up by column {name!r} of type {kind}", option="keys")
    try:
        if is_text(kind) and isinstance(value, str | bytes):
            return text_value(value)
        if isinstance(value, str) and not pa.types.is_string(kind):
            # A key typed at a command line.
            return pa.scalar(value).cast(kind).as_py()
        return pa.scalar(value, kind).as_py()
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise BadOption(f"{value!r} is no {kind} of column {name!r}", option="keys") from error


def matching_rows(batch: pa.RecordBatch, predicates: Sequence[Predicate]) -> pa.RecordBatch:
    """The rows that equal the key, as Spark compares: null with null, NaN with NaN.

    Where a comparison is null the row is left out.
    """
    mask = None
    for predicate in predicates:
        found = _equals(batch.column(predicate.column), predicate.values[0])
        mask = found if mask is None else pc.and_(mask, found)
    return batch.filter(mask)


def _equals(column: pa.Array, value: Any) -> pa.Array:
    if value is None:
        return pc.is_null(column)
    if value != value:
        return pc.is_nan(column)
    return pc.equal(column, array_of([value], column.type)[0])
