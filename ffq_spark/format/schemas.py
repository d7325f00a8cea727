"""Look columns up in a schema."""

from __future__ import annotations

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
