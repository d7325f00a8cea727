"""Errors keep their type and text on their way through Flight."""

from __future__ import annotations

import pyarrow.flight as flight
import pytest

from ffq_spark import errors
from ffq_spark.errors import FfqError
from ffq_spark.service.wire.statuses import from_flight, rich_status, to_flight

TYPES = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, FfqError) and "code" in vars(value)
]


@pytest.mark.parametrize("error_type", TYPES, ids=lambda error_type: error_type.__name__)
def test_every_error_comes_back_as_itself(error_type: type[FfqError]) -> None:
    error = error_type("orders: what happened")
    received = from_flight(to_flight(error))
    assert type(received) is error_type and str(received) == str(error)


def test_a_remedy_of_its_own_stays_the_only_one() -> None:
    error = errors.QueryNotFound("there is no statement 7", remedy="Submit the statement again")
    received = from_flight(to_flight(error))
    assert type(received) is errors.QueryNotFound and str(received) == str(error)


def test_what_the_client_of_flight_appends_is_removed() -> None:
    text = "[FFQ_FENCED] late. Detail: Failed. gRPC client debug context: UNKNOWN:Error"
    error = from_flight(flight.FlightInternalError(text))
    assert isinstance(error, errors.Fenced) and error.message == "late"


def test_an_unknown_code_is_an_error_of_ours_and_a_text_without_code_is_not() -> None:
    assert type(from_flight(Exception("[FFQ_NEW_CODE] x"))) is FfqError
    assert from_flight(Exception("connection refused")) is None


def test_a_long_message_has_a_length_of_several_bytes() -> None:
    assert rich_status(9, "x" * 300)[:5] == bytes([0x08, 9, 0x12, 0xAC, 0x02])
