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
def busy_makers() -> Iterator[ThreadPoolExecutor]:
    """One maker, who is at work for somebody whose storage does not answer."""
    answered = threading.Event()
    with ThreadPoolExecutor(1) as makers:
        makers.submit(answered.wait)
        try:
            yield makers
        finally:
            answered.set()


@pytest.mark.timeout(20)
def test_a_reader_does_not_wait_for_makers_who_wait_for_others() -> None:
    with busy_makers() as makers:
        assert list(prefetch_one(iter([1, 2, 3]), makers)) == [1, 2, 3]  # type: ignore[list-item]


@pytest.mark.timeout(20)
def test_a_reader_who_leaves_holds_nothing_open_while_makers_are_busy() -> None:
    def numbers() -> Iterator[pa.RecordBatch]:
        yield from (pa.record_batch({"a": [n]}) for n in range(3))

    source = numbers()
    gone = weakref.ref(source)
    with busy_makers() as makers:
        reader = prefetch_one(source, makers)
        del source
        assert next(reader).num_rows == 1
        reader.close()  # type: ignore[attr-defined]
        assert gone() is None


def test_an_error_of_a_batch_is_the_readers() -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"a": [1]})
        raise ValueError("no second one")

    with ThreadPoolExecutor(1) as makers, pytest.raises(ValueError, match="no second one"):
        list(prefetch_one(broken(), makers))
