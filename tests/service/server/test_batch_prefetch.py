"""Batches made ahead: no reader waits for another's, and an error reaches its reader."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pyarrow as pa
import pytest

from ffq_spark.service.server.prefetch import prefetch_one


@contextmanager
def blocked_workers() -> Iterator[ThreadPoolExecutor]:
    """Yield a pool with one worker that is blocked by storage that does not answer."""
    answered = threading.Event()
    with ThreadPoolExecutor(1) as workers:
        workers.submit(answered.wait)
        try:
            yield workers
        finally:
            answered.set()


@pytest.mark.timeout(20)
def test_a_reader_does_not_wait_for_workers_that_wait_for_others() -> None:
    with blocked_workers() as workers:
        assert list(prefetch_one(iter([1, 2, 3]), workers)) == [1, 2, 3]  # type: ignore[list-item]


@pytest.mark.timeout(20)
def test_a_reader_who_leaves_holds_nothing_open_while_workers_are_blocked() -> None:
    def numbers() -> Iterator[pa.RecordBatch]:
        yield from (pa.record_batch({"a": [n]}) for n in range(3))

    source = numbers()
    gone = weakref.ref(source)
    with blocked_workers() as workers:
        reader = prefetch_one(source, workers)
        del source
        assert next(reader).num_rows == 1
        reader.close()  # type: ignore[attr-defined]
        assert gone() is None


def test_an_error_of_a_batch_is_the_readers() -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"a": [1]})
        raise ValueError("no second one")

    with ThreadPoolExecutor(1) as workers, pytest.raises(ValueError, match="no second one"):
        list(prefetch_one(broken(), workers))
