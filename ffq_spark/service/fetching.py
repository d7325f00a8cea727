"""FFQ's FetchShufflePartition: one part as raw bytes in chunks, or as batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ffq_spark.exchange.large_parts import (
    PIECE_BYTES,
    Loading,
    PartFile,
    read_large_part,
    through_disk,
)
from ffq_spark.exchange.reader import Part, fetch_part, fetch_range
from ffq_spark.exchange.snapshot import registered_part
from ffq_spark.format import payload
from ffq_spark.format.layout import AttemptId
from ffq_spark.format.payload import Decoder
from ffq_spark.service.wire import Fetch
from ffq_spark.store import Store

RAW_SCHEMA = pa.schema([("payload", pa.binary())])
"""Raw bytes: each row is a chunk; all rows together are the part."""


def locate(store: Store, fetch: Fetch) -> Part:
    """The part that is meant; an attempt that is not registered is refused."""
    id = AttemptId(fetch.query, fetch.stage, fetch.map_task, fetch.attempt)
    return registered_part(store, id, fetch.reduce)


def part_schema(store: Store, part: Part) -> pa.Schema:
    """The columns of a part, from its first bytes."""
    head = PartFile(store, part).piece()
    return payload.decode_schema(_first_frame(store, part, head), store.url(part["file"]))


def _first_frame(store: Store, part: Part, head: pa.Buffer) -> pa.Buffer:
    if not payload.is_framed(head):
        return head
    length = min(payload.frame_bytes(head), part["bytes"])
    return PartFile(store, part).piece(length)


def part_batches(
    store: Store, part: Part, schema: pa.Schema, credits: int, loading: Loading
) -> Iterator[pa.RecordBatch]:
    """The rows of one part, verified."""
    return through_disk(read_large_part(store, part, Decoder(schema)), credits, loading)


def raw_chunks(store: Store, part: Part, fetch: Fetch, credits: int) -> Iterator[pa.RecordBatch]:
    """The bytes of one part from `start_offset` on, verified before the first is given out."""
    end = part["bytes"]
    start = min(fetch.start_offset, end)
    if fetch.max_bytes:
        end = min(end, start + fetch.max_bytes)
    whole = fetch_part(store, part) if part["bytes"] <= credits else None
    if whole is None:
        PartFile(store, part).check()
    chunk = fetch.chunk_bytes
    stride = max(1, PIECE_BYTES // chunk) * chunk
    for position in range(start, end, stride):
        size = min(stride, end - position)
        if whole is None:
            place = (part["file"], part["offset"] + position, size, part["step"])
            yield _chunked(fetch_range(store, *place), chunk)
        else:
            yield _chunked(whole[position : position + size], chunk)


def _chunked(data: pa.Buffer, chunk: int) -> pa.RecordBatch:
    """Bytes as rows of so many each; none of them is copied.

    >>> _chunked(pa.py_buffer(b"abcde"), 2).to_pylist()
    [{'payload': b'ab'}, {'payload': b'cd'}, {'payload': b'e'}]
    """
    offsets: Any = np.minimum(np.arange(-(-len(data) // chunk) + 1) * chunk, len(data))
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), data]
    column = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
    return pa.RecordBatch.from_arrays([column], schema=RAW_SCHEMA)
