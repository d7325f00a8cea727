"""Make the next batch of a stream in the background while the current one is sent."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, wait

import pyarrow as pa


def one_ahead(batches: Iterator[pa.RecordBatch], makers: Executor) -> Iterator[pa.RecordBatch]:
    """The same batches, of which the next is made by one of the makers while one is sent.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with ThreadPoolExecutor(1) as makers:
    ...     list(one_ahead(iter([1, 2, 3]), makers))
    [1, 2, 3]
    """
    source = [batches]
    del batches

    def make() -> pa.RecordBatch | None:
        return next(source[0], None)

    coming = makers.submit(make)
    try:
        # Whoever would wait for a maker to begin makes the batch; others' slow storage is not ours.
        while (batch := make() if coming.cancel() else coming.result()) is not None:
            coming = makers.submit(make)
            yield batch
    finally:
        # Whoever has gone leaves nobody at work, and no file open: a maker may come to it later.
        if not coming.cancel():
            wait([coming])
        source.clear()
