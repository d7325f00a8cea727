"""Decode the conditions that the plugin sends with a scan into predicates.

Values are in Spark's representation: times are integers, strings and binaries are bytes in
base 64, decimals and floats are text. Spark's filters for data sources hold Java's values instead,
which lack some days of 1582 and some strings. Predicates only prune: Spark applies every filter
again.
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
    """Decode conditions on the columns of an exchange, except values that Python cannot hold.

    >>> exchange = ExchangeRecord.of(pa.schema([("day", pa.date32())]), ["day"], 8)
    >>> decode_conditions([{"column": "day", "op": "<", "values": [-141427]}], exchange)
    [Predicate(column='day', op='<', values=(-141427,))]
    """
    spark = spark_arrow_schema(spark_schema(exchange))
    stored = exchange.schema
    predicates = []
    for condition in conditions:
        name = condition[FilterField.COLUMN]
        if name not in stored.names:
            continue
        types = spark.field(name).type, stored.field(name).type
        try:
            values = tuple(_value(value, *types) for value in condition[FilterField.VALUES])
        except (pa.ArrowException, ValueError, OverflowError):
            continue
        predicates.append(Predicate(name, condition[FilterField.OP], values))
    return predicates


def _value(value: Any, spark_type: pa.DataType, stored_type: pa.DataType) -> Any:
    """Decode a value and cast it to the stored type, which may have another unit or size."""
    if value is None:
        return None
    decoded = _decode(value, spark_type)
    if spark_type == stored_type:
        return decoded
    scalar = pa.scalar(decoded, spark_type)
    stored = scalar.cast(stored_type)
    if stored.cast(spark_type) != scalar:
        raise ValueError(f"{scalar} cannot be represented as {stored_type}")
    return stored.value if pa.types.is_temporal(stored_type) else stored.as_py()


def _decode(value: Any, dtype: pa.DataType) -> Any:
    if pa.types.is_string(dtype):
        return b64decode(value).decode()
    if pa.types.is_binary(dtype):
        return b64decode(value)
    if pa.types.is_decimal(dtype):
        return Decimal(value)
    return float(value) if pa.types.is_floating(dtype) else value
