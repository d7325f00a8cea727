"""What a service has done so far, counted; metrics and the health action show it."""

from __future__ import annotations

import threading
from collections import Counter


class Counters:
    """Thread-safe totals.

    >>> counters = Counters()
    >>> counters.call("do_get", "OK")
    >>> counters.sent(rows=3, size=24)
    >>> counters.calls[("do_get", "OK")], counters.rows
    (1, 3)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.calls: Counter[tuple[str, str]] = Counter()
        self.rows = 0
        self.bytes = 0
        self.rows_taken = 0
        self.bytes_taken = 0

    def call(self, method: str, status: str) -> None:
        """A call has ended, with `OK` or an error's code."""
        with self._lock:
            self.calls[method, status] += 1

    def sent(self, *, rows: int, size: int) -> None:
        """Rows went out."""
        with self._lock:
            self.rows += rows
            self.bytes += size

    def taken(self, *, rows: int, size: int) -> None:
        """Rows came in."""
        with self._lock:
            self.rows_taken += rows
            self.bytes_taken += size
