"""Check the types of key columns: each hash supports some Arrow types."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from ffq_spark.errors import UnsupportedType

_SPARK_LEAVES = frozenset(
    {
        pa.null(),
        pa.bool_(),
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.date32(),
        pa.time64("ns"),
        pa.duration("us"),
        pa.string(),
        pa.large_string(),
        pa.binary(),
        pa.large_binary(),
    }
)
_FFQ_TYPES = frozenset(
    {
        pa.null(),
        pa.bool_(),
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.large_string(),
    }
)
# Spark sends these types as structs. A mark in the second field's metadata identifies them.
_MARKED_STRUCTS = {
    "variant": ("value", "metadata"),
    "geometry": ("srid", "wkb"),
    "geography": ("srid", "wkb"),
}


def check_key_type(name: str, type: pa.DataType, hash: str) -> None:
    """Raise UnsupportedType for a key column whose type the hash does not support.

    >>> check_key_type("id", pa.int64(), "spark")
    >>> check_key_type("tags", pa.map_(pa.string(), pa.string()), "spark")
    Traceback (most recent call last):
    ...
    ffq_spark.errors.UnsupportedType: [FFQ_UNSUPPORTED_TYPE] key column `tags` of type \
map<string, string>: hash=spark has no hash for map<string, string>. Cast the column to a \
supported type, or leave it out
    """
    if hash == "ffq":
        if type not in _FFQ_TYPES:
            raise UnsupportedType(
                f"key column `{name}` of type {type}: hash=ffq supports only "
                "integers of 8 to 64 bits, float, double, string and boolean"
            )
        return
    refused = _refused_by_spark(type)
    if refused is not None:
        raise UnsupportedType(
            f"key column `{name}` of type {type}: hash=spark has no hash for {refused}"
        )


def is_list(type: pa.DataType) -> bool:
    """Return whether values are lists with offsets."""
    return bool(pa.types.is_list(type) or pa.types.is_large_list(type))


def is_bytes(type: pa.DataType) -> bool:
    """Return whether values are strings or binary values with offsets."""
    tests: tuple[Callable[[pa.DataType], bool], ...] = (
        pa.types.is_string,
        pa.types.is_binary,
        pa.types.is_large_string,
        pa.types.is_large_binary,
    )
    return any(test(type) for test in tests)


def _refused_by_spark(type: pa.DataType) -> pa.DataType | str | None:
    """Return the first type within `type` that Spark cannot hash, or None if it can hash all."""
    if pa.types.is_struct(type):
        return _refused_struct(type)
    if is_list(type):
        return _refused_by_spark(type.value_type)
    supported = (
        type in _SPARK_LEAVES
        or pa.types.is_decimal128(type)
        or (pa.types.is_timestamp(type) and type.unit == "us")
    )
    return None if supported else type


def _refused_struct(type: pa.DataType) -> pa.DataType | str | None:
    fields = [type.field(i) for i in range(type.num_fields)]
    names = tuple(field.name for field in fields)
    for mark, marked_names in _MARKED_STRUCTS.items():
        if names == marked_names and mark.encode() in (fields[1].metadata or {}):
            return mark
    refused = (_refused_by_spark(field.type) for field in fields)
    return next((kind for kind in refused if kind is not None), None)
