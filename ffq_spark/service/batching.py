"""Batches on their way out: in messages of a fair size, of which the next is made meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, wait

import pyarrow as pa

from ffq_spark.exchange.partitioner import join


def one_ahead(batches: Iterator[pa.RecordBatch], makers: Executor) -> Iterator[pa.RecordBatch]:
    """The same batches, of which the next is made by one of the makers while one is sent.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with ThreadPoolExecutor(1) as makers:
    ...     list(one_ahead(iter([1, 2, 3]), makers))
    [1, 2, 3]
    """
    coming = makers.submit(next, batches, None)
    try:
        while (batch := coming.result()) is not None:
            coming = makers.submit(next, batches, None)
            yield batch
    finally:
        # Whoever has gone leaves nobody at work, and no file open.
        wait([coming])
        del batches


def sized(batches: Iterable[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of about `limit` bytes at most, and none much smaller than needed.

    >>> batch = pa.record_batch({"a": list(range(8))})
    >>> [b.num_rows for b in sized([batch.slice(0, 1), batch.slice(1, 1), batch], 32)]
    [2, 4, 4]
    """
    for batch in join(batches, limit):
        size = batch.nbytes
        if size <= limit:
            yield batch
            continue
        count = max(1, batch.num_rows * limit // size)
        for start in range(0, batch.num_rows, count):
            yield batch.slice(start, count)
