"""Garbage collection at intervals, for the roots that a driver has written."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

from ffq_spark.exchange.maintenance.gc import collect_garbage
from ffq_spark.store import Store

logger = logging.getLogger("ffq_spark.steward")


class PeriodicGc:
    """Runs gc in a background thread whenever the interval has passed.

    >>> PeriodicGc(interval_seconds=600, ttl_ms=86_400_000).run_if_due([])
    """

    def __init__(self, interval_seconds: float, ttl_ms: int) -> None:
        self._interval_seconds = interval_seconds
        self._ttl_ms = ttl_ms
        self._next_run = 0.0
        self._thread: threading.Thread | None = None

    def run_if_due(self, stores: Sequence[Store]) -> None:
        """Start a run over these roots, unless the last one is recent or has not finished."""
        is_running = self._thread is not None and self._thread.is_alive()
        if is_running or not stores or time.monotonic() < self._next_run:
            return
        self._next_run = time.monotonic() + self._interval_seconds
        self._thread = threading.Thread(target=self._run, args=[stores], daemon=True)
        self._thread.start()

    def _run(self, stores: Sequence[Store]) -> None:
        for store in stores:
            try:
                for problem in collect_garbage(store, ttl_ms=self._ttl_ms).problems:
                    logger.warning("gc of %s: %s", store.root, problem)
            except Exception as error:
                # The next run tries again.
                logger.warning("gc of %s: %s: %s", store.root, type(error).__name__, error)
