"""Look columns up in a schema, and check its names."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from ffq_spark.errors import KeyColumnMissing


def require_column(schema: pa.Schema, name: str, option: str) -> pa.Field:
    """Return a column's field, or raise KeyColumnMissing with the option that named it.

    >>> require_column(pa.schema([("k", pa.int64())]), "k", "keys").type
    DataType(int64)
    """
    if name not in schema.names:
        columns = ", ".join(schema.names)
        raise KeyColumnMissing(f"column {name!r} is not in: {columns}", option=option)
    return schema.field(name)


def decode_names(fields: Iterable[pa.Field]) -> None:
    """Raise UnicodeDecodeError unless all names and time zones are text, at any depth.

    Arrow decodes them lazily, so they may fail anywhere in the schema of another program.

    >>> decode_names(pa.schema([("k", pa.struct([("a", pa.int64())]))]))
    """
    for field in fields:
        kind = field.type
        _ = field.name, getattr(kind, "tz", None)
        decode_names(kind.field(number) for number in range(kind.num_fields))
