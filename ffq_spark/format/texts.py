"""Convert strings that may not be valid UTF-8, as Spark allows but Python and Arrow do not.

In Python, strings that are not valid UTF-8 are bytes. Strings are ordered by their bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa


def is_text(kind: pa.DataType) -> bool:
    """Return whether the values of a type are strings.

    >>> is_text(pa.string()), is_text(pa.binary())
    (True, False)
    """
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def as_binary(kind: pa.DataType) -> pa.DataType:
    """Replace string types by binary types of the same buffers, at any depth.

    >>> as_binary(pa.struct([("name", pa.string()), ("id", pa.int64())]))
    StructType(struct<name: binary, id: int64>)
    """
    types = pa.types
    if types.is_string(kind):
        return pa.binary()
    if types.is_large_string(kind):
        return pa.large_binary()
    if types.is_struct(kind):
        return pa.struct([_binary_field(field) for field in kind])
    if types.is_map(kind):
        return pa.map_(_binary_field(kind.key_field), _binary_field(kind.item_field))
    if types.is_list(kind):
        return pa.list_(_binary_field(kind.value_field))
    return pa.large_list(_binary_field(kind.value_field)) if types.is_large_list(kind) else kind


def _binary_field(field: pa.Field) -> pa.Field:
    return field.with_type(as_binary(field.type))


def text_value(value: str | bytes) -> str | bytes:
    """Return a text as str, or as bytes if it is not valid UTF-8.

    Python represents undecodable bytes of the command line as lone surrogates.

    >>> text_value(b"a"), text_value("\\udcff")
    ('a', b'\\xff')
    """
    data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def array_of(values: Iterable[Any], kind: pa.DataType) -> pa.Array:
    """Create a column from Python values; strings may be given as bytes.

    >>> array_of(["a", None], pa.string()).to_pylist()
    ['a', None]
    >>> array_of([b"\\xff"], pa.string()).view(pa.binary()).to_pylist()
    [b'\\xff']
    """
    if not is_text(kind):
        return pa.array(values, kind)
    encoded = [value.encode() if isinstance(value, str) else value for value in values]
    return pa.array(encoded, as_binary(kind)).view(kind)


def readable_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Convert rows to Python values, with bytes that are not valid UTF-8 as `\\xff`.

    >>> readable_rows(pa.table({"s": array_of([b"a\\xff"], pa.string())}))
    [{'s': 'a\\\\xff'}]
    """
    schema = table.schema
    columns = [
        [_readable(v, field.type) for part in column.chunks for v in _binary(part).to_pylist()]
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return [dict(zip(schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _binary(array: pa.Array) -> pa.Array:
    kind = as_binary(array.type)
    return array if kind == array.type else array.view(kind)


def _readable(value: Any, kind: pa.DataType) -> Any:
    types = pa.types
    if value is None:
        return None
    if is_text(kind):
        return value.decode("utf-8", "backslashreplace")
    if types.is_struct(kind):
        return {field.name: _readable(value[field.name], field.type) for field in kind}
    if types.is_map(kind):
        return [(_readable(k, kind.key_type), _readable(v, kind.item_type)) for k, v in value]
    if types.is_list(kind) or types.is_large_list(kind):
        return [_readable(item, kind.value_type) for item in value]
    return value
