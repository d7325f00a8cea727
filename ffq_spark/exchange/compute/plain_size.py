"""Compute how large a batch becomes once its columns are plain.

Dictionaries, views and run ends repeat a value without repeating its bytes, and nulls without a
type take no bytes at all. So a message of a few bytes can become gigabytes of rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ffq_spark.exchange.compute.batch_sizes import ROW_OVERHEAD

_OFFSET_BYTES = 8


def plain_size(batch: pa.RecordBatch) -> int:
    """Return about how many bytes a batch has with plain columns, at least 8 for each row.

    The batch must be valid. The size of lists that views or run ends repeat is overestimated.

    >>> texts = pa.array(["x" * 100] * 50).dictionary_encode()
    >>> plain_size(pa.record_batch({"text": texts}))
    5000
    """
    size = sum(_size(column) for column in batch.columns)
    rows: int = batch.num_rows
    return max(size, rows * ROW_OVERHEAD)


def _size(array: pa.Array) -> int:
    kind, types = array.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _size(array.storage)
    if types.is_null(kind):
        return len(array) * ROW_OVERHEAD
    if types.is_dictionary(kind):
        return _chosen_size(array.dictionary, array.indices)
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return int(_lengths(array).sum())
    if types.is_run_end_encoded(kind):
        return _repeated_size(array.values, len(array))
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        return _repeated_size(array.values, pc.sum(array.sizes).as_py() or 0)
    if types.is_struct(kind):
        return sum(_size(array.field(number)) for number in range(kind.num_fields))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind):
        return _size(_items(array)) + len(array) * _OFFSET_BYTES
    if types.is_fixed_size_list(kind):
        return _size(array.values[array.offset * kind.list_size :][: len(array) * kind.list_size])
    return int(array.nbytes)


def _items(array: Any) -> pa.Array:
    """Return the items of all lists in an array, which may be a slice."""
    items = array.values
    if isinstance(array, pa.MapArray):
        items = pa.StructArray.from_arrays([array.keys, array.items], names=["key", "value"])
    first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
    return items[first:last]


def _chosen_size(values: pa.Array, indices: pa.Array) -> int:
    """Return the size of values that indices choose from a dictionary."""
    if not _has_lengths(values.type):
        return _repeated_size(values, len(indices))
    lengths = pa.array(_lengths(values)).take(indices)
    return int(pc.sum(lengths).as_py() or 0)


def _repeated_size(values: pa.Array, count: int) -> int:
    """Return an upper limit for the size of `count` values out of an array."""
    try:
        bits: int = values.type.bit_width
    except ValueError:
        return count * _size(values)
    return count * -(-bits // 8)


def _has_lengths(kind: pa.DataType) -> bool:
    types = pa.types
    is_view = types.is_string_view(kind) or types.is_binary_view(kind)
    is_text = types.is_string(kind) or types.is_large_string(kind)
    return bool(is_view or is_text or types.is_binary(kind) or types.is_large_binary(kind))


def _lengths(array: pa.Array) -> NDArray[np.int64]:
    """Return the lengths of texts; that of a null is 0."""
    if pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):
        # Arrow has no function for views. Each is 16 bytes that begin with the length.
        views = np.frombuffer(array.buffers()[1], np.int32).reshape(-1, 4)
        lengths = views[array.offset : array.offset + len(array), 0].astype(np.int64)
        lengths[array.is_null().to_numpy(zero_copy_only=False)] = 0
        return lengths
    known = pc.fill_null(pc.binary_length(array), 0).cast(pa.int64())
    return np.asarray(known, np.int64)
