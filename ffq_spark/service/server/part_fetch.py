"""Serve FFQ's FetchShufflePartition: one part as raw bytes in chunks, or as batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ffq_spark.exchange.read.bounded import MemoryLimits, read_large_part
from ffq_spark.exchange.read.checked_pieces import (
    PIECE_BYTES,
    Bytes,
    HeldBytes,
    PartBytes,
    check_part,
    take,
)
from ffq_spark.exchange.read.fetch import fetch_part
from ffq_spark.exchange.read.part import Part
from ffq_spark.exchange.read.part_lookup import registered_part
from ffq_spark.format.paths import AttemptId
from ffq_spark.format.payload import Decoder
from ffq_spark.service.wire.messages import Fetch
from ffq_spark.store import Store

RAW_SCHEMA = pa.schema([("payload", pa.binary())])
"""The schema of raw bytes: each row is a chunk, and all rows together are the part."""


def find_part(store: Store, fetch: Fetch) -> Part:
    """Find the requested part; raise NotRegistered for an attempt that is not registered."""
    id = AttemptId(fetch.query, fetch.stage, fetch.map_task, fetch.attempt)
    return registered_part(store, id, fetch.reduce)


def part_batches(
    store: Store, part: Part, schema: pa.Schema, limits: MemoryLimits
) -> Iterator[pa.RecordBatch]:
    """Read and verify the rows of one part."""
    return read_large_part(store, part, Decoder(schema), limits)


def raw_chunks(
    store: Store, part: Part, fetch: Fetch, limits: MemoryLimits
) -> Iterator[pa.RecordBatch]:
    """Read the bytes of one part from `start_offset` on, after verifying the whole part."""
    size = part.bytes
    start = min(fetch.start_offset, size)
    end = min(size, start + fetch.max_bytes) if fetch.max_bytes else size
    if size <= limits.part_bytes:
        data = fetch_part(store, part)[start:end]
        source: Bytes = HeldBytes(data, store.url(part.file))
    else:
        checked = check_part(store, part, limits.piece_bytes(store))
        source = PartBytes(store, part, checked, start)
    batch_bytes = max(1, PIECE_BYTES // fetch.chunk_bytes) * fetch.chunk_bytes
    for position in range(start, end, batch_bytes):
        piece = take(source, min(batch_bytes, end - position))
        yield _chunk_rows(pa.py_buffer(piece), fetch.chunk_bytes)


def _chunk_rows(data: pa.Buffer, chunk_bytes: int) -> pa.RecordBatch:
    """Return bytes as rows of `chunk_bytes` each, without copying them.

    >>> _chunk_rows(pa.py_buffer(b"abcde"), 2).to_pylist()
    [{'payload': b'ab'}, {'payload': b'cd'}, {'payload': b'e'}]
    """
    chunks = -(-len(data) // chunk_bytes)
    offsets: Any = np.minimum(np.arange(chunks + 1) * chunk_bytes, len(data))
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), data]
    column = pa.Array.from_buffers(pa.binary(), chunks, buffers)
    return pa.RecordBatch.from_arrays([column], schema=RAW_SCHEMA)
