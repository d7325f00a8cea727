"""Calls are counted, and their errors reach callers without paths or traces."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from ffq_spark.errors import CommitUnknown, FfqError, StoreFailed, Unavailable
from ffq_spark.options import ServeOptions
from ffq_spark.service.auth.access import UNRESTRICTED
from ffq_spark.service.server.activity import Activity
from ffq_spark.service.server.calls import CallWrapper
from ffq_spark.service.server.roots import Roots

CONTEXT = SimpleNamespace(
    get_middleware=lambda _: SimpleNamespace(access=UNRESTRICTED), is_cancelled=lambda: False
)


@pytest.fixture
def activity() -> Activity:
    return Activity.start(ServeOptions(max_readers=1, max_wait=0))


@pytest.fixture
def wrapper(activity: Activity) -> CallWrapper:
    return CallWrapper(Roots({"x": "/data/secret/x", "orders": "s3://secret/prefix"}), activity)


def test_a_call_has_the_access_of_its_caller_and_is_counted(
    wrapper: CallWrapper, activity: Activity
) -> None:
    with wrapper.call("do_get", CONTEXT) as access:
        assert access is UNRESTRICTED and activity.calls.active == 1
    assert activity.calls.active == 0
    assert activity.totals.calls == {("do_get", "OK"): 1}


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (StoreFailed("away", path="/data/secret/x/_ffq"), "FFQ_STORE_FAILED", "x/_ffq"),
        (flight.FlightCancelledError("gone"), "FlightCancelledError", "FFQ_BAD_REQUEST"),
        (KeyError("/data/secret/x"), "FFQ_ERROR", "see the service's log"),
        (pa.ArrowInvalid("/data/secret/x"), "FFQ_ERROR", "see the service's log"),
        (pa.ArrowMemoryError("/data/secret/x"), "FFQ_ERROR", "see the service's log"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_is_counted_and_shows_no_path(
    wrapper: CallWrapper, activity: Activity, error: Exception, status: str, text: str
) -> None:
    with pytest.raises(pa.ArrowException, match=text) as caught, wrapper.call("do_get", CONTEXT):
        raise error
    assert "secret" not in str(caught.value) and getattr(caught.value, "__suppress_context__", True)
    assert activity.totals.calls == {("do_get", status): 1}


FILE = "s3://secret/prefix/_ffq/format.json"
CLIENT = (
    "gave up after 2 tries in 0.3 s: EndpointConnectionError: Could not connect to the endpoint "
    'URL: "http://minio.secret:9000/secret/prefix/_ffq/format.json"'
)


@pytest.mark.parametrize(
    ("error", "sent"),
    [
        (
            StoreFailed(f"cannot read: {CLIENT}", path=FILE),
            "cannot read: gave up after 2 tries in 0.3 s: EndpointConnectionError "
            "(file orders/_ffq/format.json)",
        ),
        (
            StoreFailed("cannot list: ClientError: no bucket 'secret',\ntry again", path=FILE),
            "cannot list: ClientError (file orders/_ffq/format.json)",
        ),
        (
            CommitUnknown(f"query 5: cannot create: {CLIENT}", path=FILE),
            "query 5: cannot create: gave up after 2 tries in 0.3 s: EndpointConnectionError "
            "(file orders/_ffq/format.json)",
        ),
        (
            StoreFailed("cannot spill to local disk in /var/secret: No space left on device"),
            "cannot spill to local disk: No space left on device",
        ),
    ],
    ids=["read", "list", "commit", "spill"],
)
def test_the_words_of_a_storage_client_are_logged_and_not_sent(
    wrapper: CallWrapper, error: FfqError, sent: str, caplog: pytest.LogCaptureFixture
) -> None:
    """They may name the endpoint, the bucket and the prefix."""
    with pytest.raises(flight.FlightError) as caught, wrapper.call("do_get", CONTEXT):
        raise error
    assert sent in str(caught.value) and error.remedy in str(caught.value)
    assert "secret" not in str(caught.value)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING and error.message in record.getMessage()


def test_an_error_whose_text_cannot_be_made_public_shows_nothing(
    wrapper: CallWrapper, activity: Activity, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> str:
        raise KeyError("/data/secret/x")

    monkeypatch.setattr(Roots, "hide_paths", fail)
    with pytest.raises(flight.FlightError) as caught, wrapper.call("do_get", CONTEXT):
        raise StoreFailed("away", path="/data/secret/x/_ffq")
    assert "see the service's log" in str(caught.value) and "secret" not in str(caught.value)
    assert activity.totals.calls == {("do_get", "FFQ_STORE_FAILED"): 1}


def test_a_stream_holds_the_slot_of_a_reader_until_it_is_closed(
    wrapper: CallWrapper, activity: Activity
) -> None:
    def numbers() -> Any:
        with wrapper.stream(CONTEXT, lambda: None):
            yield from range(3)

    reader = numbers()
    next(reader)
    assert activity.readers.active == activity.calls.active == 1
    with pytest.raises(flight.FlightUnavailableError, match="all reader slots"):
        next(numbers())
    reader.close()
    assert activity.readers.active == activity.calls.active == 0
    assert activity.totals.calls == {("stream", "CLOSED"): 1, ("stream", Unavailable.code): 1}
