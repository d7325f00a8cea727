"""Convert a batch to a schema whose types hold the same values in another representation.

Arrow producers differ in time zones, nullability, the names of list items and the width of
offsets. An exchange stores one schema, and Spark expects another one.
"""

from __future__ import annotations

import pyarrow as pa

from ffq_spark.errors import UnsupportedType


def plain(schema: pa.Schema) -> pa.Schema:
    """Replace the dictionary types of a schema by the types of their values.

    >>> plain(pa.schema([("k", pa.dictionary(pa.int32(), pa.string()))])).field("k").type
    DataType(string)
    """
    fields = [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in schema
    ]
    for field in fields:
        if _has_dictionary(field.type):
            message = f"column {field.name!r} of type {field.type} has a nested dictionary"
            raise UnsupportedType(f"{message}; cast it to the type of its values")
    return pa.schema(fields, schema.metadata)


def _has_dictionary(kind: pa.DataType) -> bool:
    return pa.types.is_dictionary(kind) or any(
        _has_dictionary(kind.field(position).type) for position in range(kind.num_fields)
    )


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert a batch to exactly this schema; columns are matched by name.

    >>> batch = pa.record_batch({"b": [1], "a": ["x"]})
    >>> conform(batch, pa.schema([("a", pa.large_string()), ("b", pa.int32())])).to_pylist()
    [{'a': 'x', 'b': 1}]
    """
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    columns = [_conform(batch.column(field.name), field.type, field.name) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _conform(array: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    try:
        return _relabel(array, kind)
    except (pa.ArrowException, ValueError) as error:
        message = f"column {name!r} of type {array.type} does not fit type {kind}: {error}"
        raise UnsupportedType(message) from error


def _relabel(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type.equals(kind, check_metadata=True):
        return array
    if pa.types.is_struct(kind) and pa.types.is_struct(array.type):
        return _relabel_struct(array, kind)
    if pa.types.is_map(kind) and pa.types.is_map(array.type):
        pairs = [_relabel(array.keys, kind.key_type), _relabel(array.items, kind.item_type)]
        entries = pa.StructArray.from_arrays(pairs, fields=[kind.key_field, kind.item_field])
        return _with_child(array, kind, entries)
    if pa.types.is_list(kind) and pa.types.is_list(array.type):
        return _with_child(array, kind, _relabel(array.values, kind.value_type))
    return array.cast(kind)


def _relabel_struct(array: pa.StructArray, kind: pa.StructType) -> pa.StructArray:
    if array.type.num_fields != kind.num_fields:
        raise ValueError("the struct has other fields")
    names = [[field.name for field in struct] for struct in (array.type, kind)]
    if names[0] != names[1] and sorted(names[0]) == sorted(names[1]):
        raise ValueError("the struct has its fields in another order")
    children = [_relabel(array.field(i), field.type) for i, field in enumerate(kind)]
    if not children:
        return array.cast(kind)
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)


def _with_child(array: pa.Array, kind: pa.DataType, child: pa.Array) -> pa.Array:
    validity, offsets = array.buffers()[:2]
    buffers = [validity, offsets]
    return pa.Array.from_buffers(kind, len(array), buffers, array.null_count, array.offset, [child])
