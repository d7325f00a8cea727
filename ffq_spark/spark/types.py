"""Convert between the schemas of Spark DataFrames and those of exchanges."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema, to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from ffq_spark.errors import UnsupportedType
from ffq_spark.format.records import ExchangeRecord
from ffq_spark.format.schemas import require_column

_BINARY_COLLATION = "UTF8_BINARY"
# Before 4.3 Spark has no parameter for the time zone and uses UTC.
_TAKES_ZONE = "timezone" in signature(to_arrow_schema).parameters
_UTC: dict[str, Any] = {"timezone": "UTC"} if _TAKES_ZONE else {}


def nullable(dtype: DataType) -> DataType:
    """Allow nulls at every level of a type, as in all columns of exchanges.

    >>> nullable(ArrayType(IntegerType(), False)).simpleString()
    'array<int>'
    """
    if isinstance(dtype, StructType):
        return StructType(
            [StructField(f.name, nullable(f.dataType), True, f.metadata) for f in dtype.fields]
        )
    if isinstance(dtype, ArrayType):
        return ArrayType(nullable(dtype.elementType), True)
    if isinstance(dtype, MapType):
        return MapType(nullable(dtype.keyType), nullable(dtype.valueType), True)
    return dtype


def exchange_schema(schema: StructType, keys: Sequence[str]) -> tuple[pa.Schema, StructType]:
    """Return the Arrow and Spark schemas that an exchange records for a DataFrame."""
    stored = nullable(schema)
    assert isinstance(stored, StructType)
    for field in stored.fields:
        try:
            to_arrow_type(field.dataType, **_UTC)
        except (PySparkException, TypeError, ValueError) as error:
            type_name = field.dataType.simpleString()
            message = f"column {field.name!r} of type {type_name} has no Arrow form"
            raise UnsupportedType(f"{message}; cast or drop it before writing") from error
        _refuse_unrestorable(field)
    refuse_collated_keys(stored, keys)
    return spark_arrow_schema(stored), stored


def refuse_collated_keys(schema: StructType, keys: Sequence[str]) -> None:
    """Refuse key columns whose collation calls strings equal that differ in bytes."""
    for key in keys:
        _refuse_collation(key, schema[key].dataType if key in schema.names else None)


def _refuse_unrestorable(field: StructField) -> None:
    """Refuse a user-defined type with a class that a reader cannot import by its name."""
    try:
        StructField.fromJson(json.loads(field.json()))
    except Exception as error:
        type_name = field.dataType.simpleString()
        message = f"column {field.name!r} of type {type_name} cannot be restored: {error}"
        remedy = "cast it to its SQL type, or define the type's class in an importable module"
        raise UnsupportedType(f"{message}; {remedy}") from error


def spark_arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark uses for rows of a schema."""
    return to_arrow_schema(schema, **_UTC)


def _refuse_collation(name: str, dtype: DataType | None) -> None:
    for leaf in _leaves(dtype):
        collation = getattr(leaf, "collation", _BINARY_COLLATION)
        if isinstance(leaf, StringType) and collation != _BINARY_COLLATION:
            # Strings that such a collation calls equal differ in bytes, and so in partition.
            message = f"key column {name!r} is collated {collation}"
            remedy = f"use a key with COLLATE {_BINARY_COLLATION}, such as lower({name})"
            raise UnsupportedType(f"{message}; {remedy}", option="keys")


def _leaves(dtype: DataType | None) -> Iterator[DataType]:
    if isinstance(dtype, StructType):
        for field in dtype.fields:
            yield from _leaves(field.dataType)
    elif isinstance(dtype, ArrayType):
        yield from _leaves(dtype.elementType)
    elif dtype is not None:
        yield dtype


def spark_schema(exchange: ExchangeRecord) -> StructType:
    """Return the Spark schema of an exchange, also of one that was written without Spark."""
    if exchange.spark_schema is not None:
        return StructType.fromJson(json.loads(exchange.spark_schema))
    try:
        schema = nullable(from_arrow_schema(exchange.schema, prefer_timestamp_ntz=True))
    except PySparkException as error:
        message = f"Spark has no type for a column of this exchange: {error}"
        raise UnsupportedType(f"{message}; read it with ffq_spark.Exchange") from error
    assert isinstance(schema, StructType)
    return schema


METADATA_COLUMNS = StructType(
    [
        StructField("_ffq_step", LongType()),
        StructField("_ffq_query", LongType()),
        StructField("_ffq_map_task", LongType()),
        StructField("_ffq_attempt", LongType()),
        StructField("_ffq_partition", IntegerType()),
    ]
)


def output_columns(schema: StructType, columns: Sequence[str], metadata: bool) -> StructType:
    """Return the columns of a read: all or the chosen ones, then the metadata columns."""
    names = pa.schema([(name, pa.null()) for name in schema.names])
    chosen = [
        schema[require_column(names, name, "columns").name] for name in columns or schema.names
    ]
    return StructType([*chosen, *(METADATA_COLUMNS.fields if metadata else ())])
