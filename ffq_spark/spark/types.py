"""Spark's types and Arrow's: what a DataFrame's schema becomes in an exchange, and back."""

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
# Before 4.3 Spark takes no name of a zone, and means this one.
_TAKES_ZONE = "timezone" in signature(to_arrow_schema).parameters
_UTC: dict[str, Any] = {"timezone": "UTC"} if _TAKES_ZONE else {}


def relaxed(kind: DataType) -> DataType:
    """The type with nulls allowed everywhere, as every exchange keeps its columns."""
    if isinstance(kind, StructType):
        return StructType(
            [StructField(f.name, relaxed(f.dataType), True, f.metadata) for f in kind.fields]
        )
    if isinstance(kind, ArrayType):
        return ArrayType(relaxed(kind.elementType), True)
    if isinstance(kind, MapType):
        return MapType(relaxed(kind.keyType), relaxed(kind.valueType), True)
    return kind


def exchange_schema(schema: StructType, keys: Sequence[str]) -> tuple[pa.Schema, StructType]:
    """The Arrow and Spark schemas that an exchange keeps for a DataFrame's."""
    loose = relaxed(schema)
    assert isinstance(loose, StructType)
    for field in loose.fields:
        try:
            to_arrow_type(field.dataType, **_UTC)
        except (PySparkException, TypeError, ValueError) as error:
            kind = field.dataType.simpleString()
            message = f"column {field.name!r} of type {kind} has no Arrow form"
            raise UnsupportedType(f"{message}; cast or drop it before writing") from error
        _refuse_unrestorable(field)
    for key in keys:
        _refuse_collation(key, loose[key].dataType if key in loose.names else None)
    return spark_arrow_schema(loose), loose


def _refuse_unrestorable(field: StructField) -> None:
    """A user-defined type is kept by the name of its class; a reader must be able to import it."""
    try:
        StructField.fromJson(json.loads(field.json()))
    except Exception as error:
        kind = field.dataType.simpleString()
        message = f"column {field.name!r} of type {kind} cannot be restored: {error}"
        raise UnsupportedType(message) from error


def spark_arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark wants for rows of this schema."""
    return to_arrow_schema(schema, **_UTC)


def _refuse_collation(name: str, kind: DataType | None) -> None:
    for leaf in _leaves(kind):
        collation = getattr(leaf, "collation", _BINARY_COLLATION)
        if isinstance(leaf, StringType) and collation != _BINARY_COLLATION:
            # Equal strings of such a collation have different bytes, and so different partitions.
            message = f"key column {name!r} is collated {collation}"
            remedy = f"use a key with COLLATE {_BINARY_COLLATION}, such as lower({name})"
            raise UnsupportedType(f"{message}; {remedy}", option="keys")


def _leaves(kind: DataType | None) -> Iterator[DataType]:
    if isinstance(kind, StructType):
        for field in kind.fields:
            yield from _leaves(field.dataType)
    elif isinstance(kind, ArrayType):
        yield from _leaves(kind.elementType)
    elif kind is not None:
        yield kind


def spark_schema(exchange: ExchangeRecord) -> StructType:
    """The Spark schema of an exchange, whoever wrote it."""
    if exchange.spark_schema is not None:
        return StructType.fromJson(_json(exchange.spark_schema))
    try:
        schema = relaxed(from_arrow_schema(exchange.schema, prefer_timestamp_ntz=True))
    except PySparkException as error:
        raise UnsupportedType(f"Spark has no type for a column: {error}") from error
    assert isinstance(schema, StructType)
    return schema


def _json(text: str) -> dict[str, object]:
    document: dict[str, object] = json.loads(text)
    return document


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
    """The columns that a read gives: all or the chosen ones, then the metadata columns."""
    names = pa.schema([(name, pa.null()) for name in schema.names])
    chosen = [
        schema[require_column(names, name, "columns").name] for name in columns or schema.names
    ]
    return StructType([*chosen, *(METADATA_COLUMNS.fields if metadata else ())])
