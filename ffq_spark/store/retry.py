"""Retry storage requests after transient failures: throttling, server errors, lost connections."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

Result = TypeVar("Result")

# Forked workers inherit the state of Python's default generator and would all wait equally long.
_JITTER = random.SystemRandom()

_PASSING_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504, 509, 529})
_PASSING_CODES = frozenset(
    {
        "BadDigest",
        "BandwidthLimitExceeded",
        "ConditionalRequestConflict",
        "IncompleteBody",
        "InternalError",
        "OperationAborted",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequests",
        "XAmzContentSHA256Mismatch",
    }
)
# Class names of botocore, aiohttp, urllib3 and azure. Names, so that no client must be imported.
_PASSING_ERRORS = frozenset(
    {
        "ClientConnectionError",
        "ClientPayloadError",
        "ConnectionError",
        "FlexibleChecksumError",
        "HTTPClientError",
        "IncompleteRead",
        "IncompleteReadError",
        "ProtocolError",
        "ResponseParserError",
        "ServiceRequestError",
        "ServiceResponseError",
        "TimeoutError",
    }
)
# The connection broke during TLS. Other TLS errors, such as a bad certificate, are permanent.
_BROKEN_TLS = frozenset({"SSLEOFError", "SSLZeroReturnError", "SSLSyscallError"})
_LASTING_ERRORS = (FileNotFoundError, FileExistsError, PermissionError, NotADirectoryError)


class CutShort(ConnectionError):
    """A response ended before all bytes of the range arrived."""


class GaveUp(OSError):
    """A request failed in every try that the policy allows."""


@dataclass(frozen=True)
class Policy:
    """How often a request is tried, and for how long. Waits double, with jitter of up to a half.

    >>> answers = iter([TimeoutError("slow"), ConnectionResetError("gone"), b"data"])
    >>> def ask():
    ...     answer = next(answers)
    ...     if isinstance(answer, Exception):
    ...         raise answer
    ...     return answer
    >>> Policy(first_seconds=0.001).run(ask)
    b'data'
    """

    tries: int = 8
    first_seconds: float = 0.1
    longest_seconds: float = 5.0
    total_seconds: float = 120.0

    def run(self, work: Callable[[], Result]) -> Result:
        """Call `work` and return its result; retry while it raises transient errors."""
        begin = time.monotonic()
        for tries, wait in enumerate(self._waits(), start=1):
            try:
                return work()
            except Exception as error:
                spent = time.monotonic() - begin
                if not is_passing(error):
                    raise
                if wait is None or spent + wait > self.total_seconds:
                    last_error = f"{type(error).__name__}: {error}"
                    times = "1 try" if tries == 1 else f"{tries} tries"
                    message = f"gave up after {times} in {spent:.1f} s: {last_error}"
                    raise GaveUp(message) from error
                time.sleep(wait)
        raise AssertionError("the last wait is None")

    def _waits(self) -> Iterator[float | None]:
        wait = self.first_seconds
        for _ in range(self.tries - 1):
            yield wait * _JITTER.uniform(0.5, 1.0)
            wait = min(2 * wait, self.longest_seconds)
        yield None


def is_passing(error: BaseException | None) -> bool:
    """Return whether an error is transient, so that another try may succeed.

    >>> is_passing(ConnectionResetError()), is_passing(FileNotFoundError())
    (True, False)
    """
    while error is not None and not isinstance(error, _LASTING_ERRORS):
        verdict = _verdict_of(error)
        if verdict is not None:
            return verdict
        error = error.__cause__
    return False


def error_code(error: BaseException | None) -> str:
    """Return the error code of the store's response, or an empty string if it has none."""
    while error is not None:
        code = _response(error).get("Error", {}).get("Code")
        if code:
            return str(code)
        error = error.__cause__
    return ""


def _verdict_of(error: BaseException) -> bool | None:
    response = _response(error)
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode") or _status(error)
    if response or status:
        code = response.get("Error", {}).get("Code")
        return status in _PASSING_STATUSES or code in _PASSING_CODES or code in _STATUS_CODES
    names = {kind.__name__ for kind in type(error).__mro__}
    if isinstance(error, RuntimeError) and "during iteration" in str(error):
        # fsspec's files in memory were listed while another thread changed them.
        return True
    if "SSLError" in names:
        return bool(_BROKEN_TLS & names) or _broke_tls(error)
    return True if names & _PASSING_ERRORS else None


def _broke_tls(error: BaseException) -> bool:
    """Return whether a client's TLS error wraps a broken connection, as botocore's errors do."""
    inner = getattr(error, "kwargs", {}).get("error")
    while isinstance(inner, BaseException):
        if type(inner).__name__ in _BROKEN_TLS:
            return True
        inner = inner.__cause__ or inner.__context__
    return False


# For a response without a body botocore uses the HTTP status as the error code.
_STATUS_CODES = frozenset(str(status) for status in _PASSING_STATUSES)


def _response(error: BaseException) -> dict[str, Any]:
    response = getattr(error, "response", None)
    return response if isinstance(response, dict) else {}


def _status(error: BaseException) -> int | None:
    values = (getattr(error, name, None) for name in ("status_code", "status", "code"))
    return next((value for value in values if isinstance(value, int)), None)
