"""Totals of calls, rows and bytes since the server started, for metrics."""

from __future__ import annotations

import threading
from collections import Counter


class ServiceTotals:
    """Thread-safe totals.

    >>> totals = ServiceTotals()
    >>> totals.count_call("do_get", "OK")
    >>> totals.count_sent(rows=3, size=24)
    >>> totals.calls[("do_get", "OK")], totals.rows_sent
    (1, 3)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.calls: Counter[tuple[str, str]] = Counter()
        self.rows_sent = 0
        self.bytes_sent = 0
        self.rows_received = 0
        self.bytes_received = 0

    def count_call(self, method: str, status: str) -> None:
        """Count a call that ended with `OK` or an error code."""
        with self._lock:
            self.calls[method, status] += 1

    def count_sent(self, *, rows: int, size: int) -> None:
        """Count rows that were sent to a reader."""
        with self._lock:
            self.rows_sent += rows
            self.bytes_sent += size

    def count_received(self, *, rows: int, size: int) -> None:
        """Count rows that a producer uploaded."""
        with self._lock:
            self.rows_received += rows
            self.bytes_received += size
