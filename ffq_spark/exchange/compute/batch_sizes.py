"""Split and join record batches, so that each stays near a wanted size in bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa

ROW_OVERHEAD = 8
"""Bytes that sorting or arranging a batch needs for each row, besides the row itself."""

Size: TypeAlias = Callable[[pa.RecordBatch], int]
"""A function that returns the size of a batch in bytes."""


def batch_cost(batch: pa.RecordBatch) -> int:
    """Return the bytes of memory that a buffered batch needs.

    >>> batch_cost(pa.record_batch({"a": [1, 2]}))
    32
    """
    return int(batch.nbytes + batch.num_rows * ROW_OVERHEAD)


def buffer_bytes(batch: pa.RecordBatch) -> int:
    """Return the bytes of a batch's buffers."""
    return int(batch.nbytes)


def split_evenly(batch: pa.RecordBatch, limit: int) -> Iterator[pa.RecordBatch]:
    """Slice a batch into pieces with equal numbers of rows, of about `limit` bytes each.

    For writes, whose limit is a target: the size of a piece follows from the average row, which
    gives the fewest pieces, but a piece of wide rows may exceed the limit. `split_within` is for
    limits that no piece may exceed. Nothing is copied.

    >>> [piece.num_rows for piece in split_evenly(pa.record_batch({"a": list(range(9))}), 64)]
    [3, 3, 3]
    """
    count = min(-(-batch_cost(batch) // limit), batch.num_rows)
    if count <= 1:
        yield batch
        return
    rows = -(-batch.num_rows // count)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def split_within(
    batch: pa.RecordBatch, limit: int, size: Size = buffer_bytes
) -> Iterator[pa.RecordBatch]:
    """Slice a batch into pieces of at most `limit` bytes, or of one row; skip an empty batch.

    For messages and reads, whose limit bounds memory: the batch is halved until every piece fits,
    because rows may differ in size. That gives up to twice as many pieces as `split_evenly`, which
    is for limits that are a target. Nothing is copied.

    >>> batch = pa.record_batch({"a": ["x" * 90, "y", "z", "u"]})
    >>> [piece.num_rows for piece in split_within(batch, 30)]
    [1, 1, 2]
    """
    half = batch.num_rows // 2
    if not half or size(batch) <= limit:
        if batch.num_rows:
            yield batch
        return
    yield from split_within(batch.slice(0, half), limit, size)
    yield from split_within(batch.slice(half), limit, size)


def join_small(
    batches: Iterable[pa.RecordBatch], limit: int, size: Size = buffer_bytes
) -> Iterator[pa.RecordBatch]:
    """Concatenate neighbouring batches as long as they have at most `limit` bytes together.

    >>> one = pa.record_batch({"a": [1]})
    >>> [batch.num_rows for batch in join_small([one, one, one], 16)]
    [2, 1]
    """
    held: list[pa.RecordBatch] = []
    total = 0
    for batch in batches:
        own = size(batch)
        if held and total + own > limit:
            yield concat(held)
            held, total = [], 0
        held.append(batch)
        total += own
    if held:
        yield concat(held)


def resize(
    batches: Iterable[pa.RecordBatch], limit: int, size: Size = buffer_bytes
) -> Iterator[pa.RecordBatch]:
    """Join small batches and split large ones, so that each has up to `limit` bytes or one row.

    >>> batch = pa.record_batch({"a": list(range(8))})
    >>> [b.num_rows for b in resize([batch.slice(0, 1), batch.slice(1, 1), batch], 32)]
    [2, 4, 4]
    """
    for batch in join_small(batches, limit, size):
        yield from split_within(batch, limit, size)


def concat(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenate batches of one schema; a single batch is returned without a copy."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def compact(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Copy a batch into memory of its own size: a slice holds all bytes that it was cut from."""
    return pa.ipc.read_record_batch(batch.serialize(), batch.schema)
