"""The conditions of a scan that the plugin sends, as predicates.

Values are Spark's own: times are its integers, strings and binaries are bytes in base 64, decimals
and floats are text. Spark's filters for data sources hold Java's values instead, which lack some
days of 1582 and some strings. Predicates only prune: Spark applies every filter again.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from ffq_spark.exchange.compute.pruning import Predicate
from ffq_spark.format.records import ExchangeRecord
from ffq_spark.shared_names import FilterField
from ffq_spark.spark.types import spark_arrow_schema, spark_schema


def decode_conditions(
    conditions: Iterable[Mapping[str, Any]], exchange: ExchangeRecord
) -> list[Predicate]:
    """Decode the conditions on columns of an exchange; drop those whose values Python lacks.

    >>> exchange = ExchangeRecord.of(pa.schema([("day", pa.date32())]), ["day"], 8)
    >>> decode_conditions([{"column": "day", "op": "<", "values": [-141427]}], exchange)
    [Predicate(column='day', op='<', values=(-141427,))]
    """
    seen = spark_arrow_schema(spark_schema(exchange))
    written = exchange.schema
    found = []
    for condition in conditions:
        name = condition[FilterField.COLUMN]
        if name not in written.names:
            continue
        kinds = seen.field(name).type, written.field(name).type
        try:
            values = tuple(_value(value, *kinds) for value in condition[FilterField.VALUES])
        except (pa.ArrowException, ValueError, OverflowError):
            continue
        found.append(Predicate(name, condition[FilterField.OP], values))
    return found


def _value(value: Any, seen: pa.DataType, written: pa.DataType) -> Any:
    """The value in the type that was written, which may have another unit or size."""
    if value is None:
        return None
    decoded = _decoded(value, seen)
    if seen == written:
        return decoded
    scalar = pa.scalar(decoded, seen)
    found = scalar.cast(written)
    if found.cast(seen) != scalar:
        raise ValueError(f"{scalar} is no {written}")
    return found.value if pa.types.is_temporal(written) else found.as_py()


def _decoded(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_string(kind):
        return b64decode(value).decode()
    if pa.types.is_binary(kind):
        return b64decode(value)
    if pa.types.is_decimal(kind):
        return Decimal(value)
    return float(value) if pa.types.is_floating(kind) else value
