"""Which errors are retried, and how often."""

from __future__ import annotations

import ssl
from collections.abc import Callable

import aiohttp
import pytest
from botocore import exceptions as boto
from s3fs.errors import translate_boto_error

from ffq_spark.store.retry import CutShort, GaveUp, Policy, error_code, is_passing

URL = {"endpoint_url": "http://127.0.0.1:1"}


def answer(code: str, status: int) -> BaseException:
    """Return a store's error response as the exception that s3fs raises for it."""
    response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    error: BaseException = translate_boto_error(boto.ClientError(response, "GetObject"))
    return error


def because(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        answer("SlowDown", 503),
        answer("ServiceUnavailable", 503),
        answer("InternalError", 500),
        answer("InternalError", 200),
        answer("TooManyRequests", 429),
        answer("RequestLimitExceeded", 400),
        answer("Throttling", 400),
        answer("RequestTimeout", 400),
        answer("ConditionalRequestConflict", 409),
        answer("503", 503),
        answer("", 502),
        boto.EndpointConnectionError(**URL),
        boto.ConnectTimeoutError(**URL),
        boto.ReadTimeoutError(**URL),
        boto.ConnectionClosedError(**URL),
        boto.ResponseStreamingError(error="cut"),
        boto.IncompleteReadError(actual_bytes=1, expected_bytes=2),
        aiohttp.ClientPayloadError("cut"),
        aiohttp.ServerDisconnectedError(),
        ConnectionResetError(),
        TimeoutError(),
        CutShort("storage sent 1 of 2 bytes"),
        ssl.SSLEOFError(8, "EOF occurred in violation of protocol"),
        ssl.SSLZeroReturnError(6, "TLS connection has been closed"),
        boto.SSLError(**URL, error=ssl.SSLEOFError(8, "EOF occurred")),
        boto.SSLError(**URL, error=because(OSError("no"), ssl.SSLEOFError(8, "EOF occurred"))),
    ],
    ids=repr,
)
def test_trouble_that_passes_is_tried_again(error: BaseException) -> None:
    assert is_passing(error)


@pytest.mark.parametrize(
    "error",
    [
        answer("NoSuchKey", 404),
        answer("404", 404),
        answer("NoSuchBucket", 404),
        answer("AccessDenied", 403),
        answer("SignatureDoesNotMatch", 403),
        answer("ExpiredToken", 400),
        answer("PreconditionFailed", 412),
        answer("InvalidRange", 416),
        answer("InvalidPart", 400),
        answer("NotImplemented", 501),
        answer("PermanentRedirect", 301),
        boto.NoCredentialsError(),
        boto.SSLError(**URL, error=ssl.SSLCertVerificationError("self-signed")),
        boto.SSLError(**URL, error="self-signed"),
        ssl.SSLCertVerificationError("self-signed"),
        ssl.SSLError(1, "wrong version number"),
        boto.ParamValidationError(report="no"),
        FileNotFoundError("x"),
        FileExistsError("x"),
        PermissionError("x"),
        OSError(28, "no space left"),
        ValueError("x"),
    ],
    ids=repr,
)
def test_what_stays_wrong_is_not_tried_again(error: BaseException) -> None:
    assert not is_passing(error)


def failing(error: Exception, times: int, calls: list[int]) -> Callable[[], str]:
    def work() -> str:
        calls.append(1)
        if len(calls) <= times:
            raise error
        return "done"

    return work


def test_the_last_try_may_succeed() -> None:
    calls: list[int] = []
    policy = Policy(tries=4, first_seconds=0.001)
    assert policy.run(failing(TimeoutError("slow"), 3, calls)) == "done"
    assert len(calls) == 4


def test_tries_are_bounded_and_the_error_counts_them() -> None:
    calls: list[int] = []
    policy = Policy(tries=4, first_seconds=0.001)
    with pytest.raises(GaveUp, match=r"gave up after 4 tries in 0\.\d s: TimeoutError: slow"):
        policy.run(failing(TimeoutError("slow"), 9, calls))
    assert len(calls) == 4


def test_what_stays_wrong_is_raised_as_it_is_at_once() -> None:
    calls: list[int] = []
    with pytest.raises(FileNotFoundError):
        Policy().run(failing(FileNotFoundError("x"), 9, calls))
    assert len(calls) == 1


def test_time_is_bounded_too() -> None:
    calls: list[int] = []
    policy = Policy(tries=100, first_seconds=0.05, total_seconds=0.2)
    with pytest.raises(GaveUp):
        policy.run(failing(TimeoutError("slow"), 999, calls))
    assert 2 <= len(calls) <= 8


def test_waits_double_up_to_the_longest_and_differ() -> None:
    policy = Policy(tries=9, first_seconds=1, longest_seconds=10)
    waits = [wait for wait in policy._waits() if wait is not None]
    longest = [1, 2, 4, 8, 10, 10, 10, 10]
    assert len(waits) == 8
    assert all(top / 2 <= wait <= top for wait, top in zip(waits, longest, strict=True))
    assert waits != [wait for wait in policy._waits() if wait is not None]


def test_the_stores_own_word_is_found_below_other_errors() -> None:
    assert error_code(answer("InvalidRange", 416)) == "InvalidRange"
    assert error_code(ValueError()) == ""
