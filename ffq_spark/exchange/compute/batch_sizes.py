"""Batches cut into pieces that are small enough."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa


def slices(batch: pa.RecordBatch, limit: int) -> Iterator[pa.RecordBatch]:
    """The same rows in pieces of at most `limit` bytes, or of one row; nothing is copied.

    Halves, again and again: rows may differ in size, so an average says little of a piece.

    >>> batch = pa.record_batch({"a": ["x" * 90, "y", "z", "u"]})
    >>> [piece.num_rows for piece in slices(batch, 30)]
    [1, 1, 2]
    """
    half = batch.num_rows // 2
    if not half or batch.nbytes <= limit:
        if batch.num_rows:
            yield batch
        return
    yield from slices(batch.slice(0, half), limit)
    yield from slices(batch.slice(half), limit)
