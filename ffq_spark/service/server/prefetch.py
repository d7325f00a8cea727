"""Prepare the next batch of a stream while the current one is sent."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, wait

import pyarrow as pa


def prefetch_one(batches: Iterator[pa.RecordBatch], workers: Executor) -> Iterator[pa.RecordBatch]:
    """Yield the batches, and let a worker thread prepare each one while its predecessor is sent.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with ThreadPoolExecutor(1) as workers:
    ...     list(prefetch_one(iter([1, 2, 3]), workers))
    [1, 2, 3]
    """
    # A list, so that `clear` drops the last reference: a worker may keep `produce` for a while.
    source = [batches]
    del batches

    def produce() -> pa.RecordBatch | None:
        return next(source[0], None)

    pending = workers.submit(produce)
    try:
        # If no worker has begun, produce the batch here: the workers may be blocked by slow storage
        # of other readers.
        while (batch := produce() if pending.cancel() else pending.result()) is not None:
            pending = workers.submit(produce)
            yield batch
    finally:
        # When the reader leaves, let a running worker finish, and close the files of the source.
        if not pending.cancel():
            wait([pending])
        source.clear()
