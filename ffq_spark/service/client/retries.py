"""Retry calls whose connection was lost, with growing waits."""

from __future__ import annotations

import time

from ffq_spark.errors import Unavailable
from ffq_spark.service.wire.statuses import from_flight

_MAX_WAIT_SECONDS = 2.0


class Retries:
    """Count the failures in a row of one call, and wait between them.

    >>> Retries(0).wait_after(OSError("connection refused"))
    Traceback (most recent call last):
    ffq_spark.errors.Unavailable: [FFQ_UNAVAILABLE] connection refused. Try again in a moment
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.failures = 0

    def reset(self) -> None:
        """Forget past failures: the call has made progress."""
        self.failures = 0

    def wait_after(self, error: Exception) -> None:
        """Wait before the next try; raise at the limit, and for errors of the service itself."""
        service_error = from_flight(error)
        if service_error is not None and not isinstance(service_error, Unavailable):
            raise service_error from None
        if self.failures >= self._limit:
            raise (service_error or Unavailable(_first_line(error))) from error
        time.sleep(min(0.05 * 2**self.failures, _MAX_WAIT_SECONDS))
        self.failures += 1


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].partition(". gRPC client debug context")[0]
