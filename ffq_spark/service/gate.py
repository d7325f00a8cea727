"""Concurrency limits, FIFO waiting and graceful draining."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from ffq_spark.errors import Unavailable

_SHUTTING_DOWN = "the service is shutting down"


class Gate:
    """Lets so many in at once; others wait in line, first come, first served, and not for ever.

    >>> gate = Gate("readers", limit=1, wait=0)
    >>> with gate.inside(), gate.inside():
    ...     pass
    Traceback (most recent call last):
    ffq_spark.errors.Unavailable: [FFQ_UNAVAILABLE] 1 readers are at work and nobody left in 0 s. \
Try again in a moment
    """

    def __init__(self, what: str, limit: int, wait: float) -> None:
        self._what = what
        self._limit = limit
        self._wait = wait
        self._lock = threading.Lock()
        self._line: deque[threading.Event] = deque()
        self._closed = False
        self.active = 0

    @property
    def waiting(self) -> int:
        return len(self._line)

    @contextmanager
    def inside(self) -> Iterator[None]:
        self._enter()
        try:
            yield
        finally:
            self._leave()

    def _enter(self) -> None:
        with self._lock:
            if self._closed:
                raise Unavailable(_SHUTTING_DOWN)
            if self.active < self._limit and not self._line:
                self.active += 1
                return
            turn = threading.Event()
            self._line.append(turn)
        turn.wait(self._wait)
        with self._lock:
            if turn not in self._line:
                # `_leave` has passed the place on.
                return
            self._line.remove(turn)
            if self._closed:
                raise Unavailable(_SHUTTING_DOWN)
        told = f"{self._limit} {self._what} are at work and nobody left in {self._wait} s"
        raise Unavailable(told)

    def close(self) -> None:
        """Refuse everybody who waits in line, and everybody who comes later."""
        with self._lock:
            self._closed = True
            for turn in self._line:
                turn.set()

    def _leave(self) -> None:
        with self._lock:
            if self._line and not self._closed:
                # The place goes to whoever is first in line, and nobody can overtake.
                self._line.popleft().set()
            else:
                self.active -= 1


class Calls:
    """All calls under way; once the house is being emptied no new one comes in."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.active = 0
        self.draining = False
        self.stopping = False
        """Whether calls under way are to end, too."""

    @contextmanager
    def one(self) -> Iterator[None]:
        with self._changed:
            if self.draining:
                raise Unavailable(_SHUTTING_DOWN)
            self.active += 1
        try:
            yield
        finally:
            with self._changed:
                self.active -= 1
                self._changed.notify_all()

    def drain(self, seconds: float) -> bool:
        """Let nobody in, and wait until all are gone; whether they are."""
        deadline = time.monotonic() + seconds
        with self._changed:
            self.draining = True
            gone = self._changed.wait_for(
                lambda: not self.active, max(0.0, deadline - time.monotonic())
            )
            self.stopping = True
        return gone
