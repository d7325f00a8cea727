"""FFQ's FetchShufflePartition: one part as raw bytes in chunks, or as batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ffq_spark.exchange.read.bounded import Limits, read_large_part
from ffq_spark.exchange.read.one_part import registered_part
from ffq_spark.exchange.read.part_file import (
    PIECE_BYTES,
    Bytes,
    HeldBytes,
    PartBytes,
    check_part,
    take,
)
from ffq_spark.exchange.read.parts import Part, fetch_part
from ffq_spark.format.paths import AttemptId
from ffq_spark.format.payload import Decoder
from ffq_spark.service.wire import Fetch
from ffq_spark.store import Store

RAW_SCHEMA = pa.schema([("payload", pa.binary())])
"""Raw bytes: each row is a chunk; all rows together are the part."""


def locate(store: Store, fetch: Fetch) -> Part:
    """The part that is meant; an attempt that is not registered is refused."""
    id = AttemptId(fetch.query, fetch.stage, fetch.map_task, fetch.attempt)
    return registered_part(store, id, fetch.reduce)


def part_batches(
    store: Store, part: Part, schema: pa.Schema, limits: Limits
) -> Iterator[pa.RecordBatch]:
    """The rows of one part, verified."""
    return read_large_part(store, part, Decoder(schema), limits)


def raw_chunks(store: Store, part: Part, fetch: Fetch, limits: Limits) -> Iterator[pa.RecordBatch]:
    """The bytes of one part from `start_offset` on, verified before the first is given out."""
    whole = part["bytes"]
    start = min(fetch.start_offset, whole)
    end = min(whole, start + fetch.max_bytes) if fetch.max_bytes else whole
    if whole <= limits.part_bytes:
        held = fetch_part(store, part)[start:end]
        source: Bytes = HeldBytes(held, store.url(part["file"]))
    else:
        checked = check_part(store, part, limits.piece_bytes(store))
        source = PartBytes(store, part, checked, start)
    stride = max(1, PIECE_BYTES // fetch.chunk_bytes) * fetch.chunk_bytes
    for position in range(start, end, stride):
        data = take(source, min(stride, end - position))
        yield _chunked(pa.py_buffer(data), fetch.chunk_bytes)


def _chunked(data: pa.Buffer, chunk: int) -> pa.RecordBatch:
    """Bytes as rows of so many each; none of them is copied.

    >>> _chunked(pa.py_buffer(b"abcde"), 2).to_pylist()
    [{'payload': b'ab'}, {'payload': b'cd'}, {'payload': b'e'}]
    """
    offsets: Any = np.minimum(np.arange(-(-len(data) // chunk) + 1) * chunk, len(data))
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), data]
    column = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
    return pa.RecordBatch.from_arrays([column], schema=RAW_SCHEMA)
