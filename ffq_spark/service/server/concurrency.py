"""Concurrency limits, FIFO waiting and graceful draining."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from ffq_spark.errors import Unavailable

SHUTTING_DOWN = "the service is shutting down"


class ConcurrencyLimit:
    """A limited number of slots; callers wait in FIFO order, for a limited time.

    >>> readers = ConcurrencyLimit("reader", slots=1, wait_seconds=0)
    >>> with readers.slot(), readers.slot():
    ...     pass
    Traceback (most recent call last):
    ffq_spark.errors.Unavailable: [FFQ_UNAVAILABLE] all reader slots (1) stayed busy for 0 s. \
Try again in a moment
    """

    def __init__(self, name: str, slots: int, wait_seconds: float) -> None:
        self._name = name
        self._slots = slots
        self._wait_seconds = wait_seconds
        self._lock = threading.Lock()
        self._queue: deque[threading.Event] = deque()
        self._closed = False
        self.active = 0

    @property
    def waiting(self) -> int:
        """The number of callers that wait for a slot."""
        return len(self._queue)

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Hold a slot while the block runs; raise Unavailable if none becomes free in time."""
        self._acquire()
        try:
            yield
        finally:
            self._release()

    def _acquire(self) -> None:
        with self._lock:
            if self._closed:
                raise Unavailable(SHUTTING_DOWN)
            if self.active < self._slots and not self._queue:
                self.active += 1
                return
            granted = threading.Event()
            self._queue.append(granted)
        granted.wait(self._wait_seconds)
        with self._lock:
            if granted not in self._queue:
                # `_release` handed its slot over.
                return
            self._queue.remove(granted)
            if self._closed:
                raise Unavailable(SHUTTING_DOWN)
        raise Unavailable(
            f"all {self._name} slots ({self._slots}) stayed busy for {self._wait_seconds} s"
        )

    def close(self) -> None:
        """Refuse callers that wait and callers that come later."""
        with self._lock:
            self._closed = True
            for granted in self._queue:
                granted.set()

    def _release(self) -> None:
        with self._lock:
            if self._queue and not self._closed:
                # Hand the slot to the first in the queue, so that no newcomer can overtake it.
                self._queue.popleft().set()
            else:
                self.active -= 1


class ActiveCalls:
    """The calls in progress; draining refuses new ones and waits for these to finish.

    >>> calls = ActiveCalls()
    >>> with calls.track():
    ...     calls.active
    1
    >>> calls.drain(seconds=0)
    True
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.active = 0
        self.draining = False
        self.stopping = False
        """Whether calls in progress must end now."""

    @contextmanager
    def track(self) -> Iterator[None]:
        """Count a call while the block runs; raise Unavailable while the server drains."""
        with self._changed:
            if self.draining:
                raise Unavailable(SHUTTING_DOWN)
            self.active += 1
        try:
            yield
        finally:
            with self._changed:
                self.active -= 1
                self._changed.notify_all()

    def refuse_stopped(self) -> None:
        """Raise Unavailable if calls in progress must end now."""
        if self.stopping:
            raise Unavailable(SHUTTING_DOWN)

    def drain(self, seconds: float) -> bool:
        """Refuse new calls, wait for calls in progress, and return whether all finished in time."""
        deadline = time.monotonic() + seconds
        with self._changed:
            self.draining = True
            finished = self._changed.wait_for(
                lambda: not self.active, max(0.0, deadline - time.monotonic())
            )
            self.stopping = True
        return finished
