"""Concurrency limits, FIFO waiting and graceful draining."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ffq_spark.errors import Unavailable

SHUTTING_DOWN = "the service is shutting down"
# How often a caller that waits for a slot looks whether it still has to.
_LOOK_SECONDS = 1.0


def _stays() -> bool:
    return False


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
        self._end_idle: dict[object, Callable[[], object]] = {}
        self._closed = False
        self.active = 0

    @property
    def waiting(self) -> int:
        """The number of callers that wait for a slot."""
        return len(self._queue)

    @contextmanager
    def slot(
        self,
        has_gone: Callable[[], bool] = _stays,
        end_idle: Callable[[], object] | None = None,
    ) -> Iterator[None]:
        """Hold a slot while the block runs; raise Unavailable if none becomes free in time.

        A caller that `has_gone` no longer waits. Callers that wait call `end_idle`, which ends the
        block if nothing has happened in it for too long.
        """
        self._acquire(has_gone)
        holder = object()
        if end_idle is not None:
            self._end_idle[holder] = end_idle
        try:
            yield
        finally:
            self._end_idle.pop(holder, None)
            self._release()

    def _acquire(self, has_gone: Callable[[], bool]) -> None:
        with self._lock:
            if self._closed:
                raise Unavailable(SHUTTING_DOWN)
            if self.active < self._slots and not self._queue:
                self.active += 1
                return
            granted = threading.Event()
            self._queue.append(granted)
        is_waiting = self._wait(granted, has_gone)
        with self._lock:
            if granted not in self._queue:
                # `_release` handed its slot over.
                return
            self._queue.remove(granted)
            if self._closed:
                raise Unavailable(SHUTTING_DOWN)
        if not is_waiting:
            raise Unavailable("the caller has disconnected")
        raise Unavailable(
            f"all {self._name} slots ({self._slots}) stayed busy for {self._wait_seconds} s"
        )

    def _wait(self, granted: threading.Event, has_gone: Callable[[], bool]) -> bool:
        """Wait for a slot, and end the blocks of idle holders; return whether the caller stays."""
        deadline = time.monotonic() + self._wait_seconds
        while True:
            for end_idle in list(self._end_idle.values()):
                if not granted.is_set():
                    end_idle()
            if granted.wait(max(0.0, min(deadline - time.monotonic(), _LOOK_SECONDS))):
                return True
            if has_gone():
                return False
            if time.monotonic() >= deadline:
                return True

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
