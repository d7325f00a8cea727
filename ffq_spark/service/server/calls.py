"""Wrap Flight calls: find the caller, count the call, and report errors without paths."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow.flight as flight

from ffq_spark.errors import BadRequest, FfqError, StoreFailed
from ffq_spark.service.auth.access import Access
from ffq_spark.service.server.activity import Activity
from ffq_spark.service.server.roots import Roots
from ffq_spark.service.wire.statuses import to_flight
from ffq_spark.store.failures import without_client_words

logger = logging.getLogger("ffq_spark.service")

ACCESS = "access"
"""The name under which Flight keeps the middleware that authenticates calls."""

_UNEXPECTED = "[FFQ_ERROR] internal error of the service: see the service's log"


def refuse_large(request: bytes, limit: int) -> None:
    """Raise BadRequest for a ticket, descriptor, action or metadata that is too large.

    >>> refuse_large(b"{}", limit=1)
    Traceback (most recent call last):
    ffq_spark.errors.BadRequest: [FFQ_BAD_REQUEST] request of 2 bytes exceeds the limit of 1 \
(option maxRequestBytes). Correct the request; docs/service.md describes every one
    """
    if len(request) > limit:
        raise BadRequest(
            f"request of {len(request)} bytes exceeds the limit of {limit} (option maxRequestBytes)"
        )


class CallWrapper:
    """Context managers for calls and for the streams that outlive them."""

    def __init__(self, roots: Roots, activity: Activity) -> None:
        self._roots = roots
        self._activity = activity

    @contextmanager
    def call(self, method: str, context: Any) -> Iterator[Access]:
        """Run a Flight method as one counted call, and yield the caller's access."""
        with self._reported(method), self._activity.calls.track():
            yield context.get_middleware(ACCESS).access

    @contextmanager
    def stream(self, context: Any, end_idle: Callable[[], None]) -> Iterator[None]:
        """Send a stream of rows as one counted call that holds a reader slot.

        `end_idle` ends the stream if its reader has stopped reading, so that others get its slot.
        """
        slot = self._activity.readers.slot(context.is_cancelled, end_idle)
        with self._reported("stream"), self._activity.calls.track(), slot:
            yield

    @contextmanager
    def _reported(self, method: str) -> Iterator[None]:
        """Count how the block ends, and raise its errors as Flight's, without paths or traces."""
        status = "OK"
        try:
            yield
        except FfqError as error:
            status = error.code
            raise to_flight(error, self.public_text(method, error)) from None
        except flight.FlightError as error:
            # The caller has disconnected.
            status = type(error).__name__
            logger.info("%s: %s", method, error)
            invalid = BadRequest(f"the request's data is not valid Arrow ({status})")
            raise to_flight(invalid) from None
        except GeneratorExit:
            status = "CLOSED"
            raise
        except Exception:
            status = "FFQ_ERROR"
            logger.exception("%s failed", method)
            raise flight.FlightInternalError(_UNEXPECTED) from None
        finally:
            self._activity.totals.count_call(method, status)

    def public_text(self, method: str, error: FfqError) -> str:
        """Return the text of an error for callers, and log what storage clients said in it."""
        text = str(error)
        if isinstance(error, StoreFailed) or without_client_words(text) != text:
            logger.warning("%s: %s", method, text)
        try:
            return self._roots.hide_paths(text)
        except Exception:
            # Flight would send the trace of an error that is not its own.
            logger.exception("cannot hide the paths in an error of %s", method)
            return _UNEXPECTED
