"""Send rows to a reader. A stream can be ended from outside once its reader has stopped reading."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Generator
from typing import TypeAlias

import pyarrow as pa

from ffq_spark.errors import Unavailable

OpenStream: TypeAlias = Callable[[Callable[[], None]], Generator[pa.RecordBatch, None, None]]
"""A function that takes `end_if_idle` of its stream and returns the batches."""


class ReaderStream:
    """An iterator over batches, which Flight advances when the reader has taken the last one.

    Flight drops the iterator when the reader disconnects, which closes the generator. So nothing
    else may keep the iterator alive: `end_if_idle` is passed on with a weak reference.

    >>> def numbers(end_if_idle):
    ...     yield from range(3)
    >>> stream = ReaderStream(numbers, idle_seconds=0)
    >>> next(stream)
    0
    >>> stream.end_if_idle()
    >>> next(stream)
    Traceback (most recent call last):
    ffq_spark.errors.Unavailable: [FFQ_UNAVAILABLE] the reader read nothing for 0 s while others \
waited (option maxIdle). Try again in a moment
    """

    def __init__(self, open_stream: OpenStream, idle_seconds: float) -> None:
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._sent = time.monotonic()
        self._error: Exception | None = None
        end_if_idle = weakref.WeakMethod(self.end_if_idle)

        def end() -> None:
            method = end_if_idle()
            if method is not None:
                method()

        self._batches = open_stream(end)

    def __iter__(self) -> ReaderStream:
        return self

    def __next__(self) -> pa.RecordBatch:
        with self._lock:
            if self._error is not None:
                # Without an error the reader would take the rows so far for all.
                raise self._error
            try:
                return next(self._batches)
            finally:
                self._sent = time.monotonic()

    def end_if_idle(self) -> None:
        """End the stream if the reader has taken no batch for the idle time."""
        if not self._lock.acquire(blocking=False):
            # The next batch is being made for the reader.
            return
        try:
            if self._error is not None or time.monotonic() - self._sent < self._idle_seconds:
                return
            try:
                self._batches.throw(
                    Unavailable(
                        f"the reader read nothing for {self._idle_seconds} s while others waited "
                        "(option maxIdle)"
                    )
                )
            except Exception as error:
                self._error = error
        finally:
            self._lock.release()
