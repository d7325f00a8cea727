"""Convert errors to Flight statuses on the server, and back to errors on the client.

The text begins with the error's code, so that every client can distinguish errors. Flight has no
status for FAILED_PRECONDITION: that code is sent as a google.rpc.Status in the trailer
`grpc-status-details-bin`, as in gRPC's richer error model.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from ffq_spark import errors
from ffq_spark.errors import ErrorClass, FfqError, Forbidden, Unauthenticated, Unavailable

FAILED_PRECONDITION, INTERNAL = 9, 13

_CODED = re.compile(r"\[(FFQ_[A-Z_]+)\] (.*)", re.DOTALL)
# What Flight's client appends to a message.
_CLIENT_SUFFIX = re.compile(
    r"(\. Detail: |\. gRPC client debug context: |\. Client context: ).*", re.DOTALL
)


class _WithoutTrace:
    """Keep Arrow from sending an exception's stack trace to the caller.

    Arrow formats the trace of errors that are not Flight's own. Formatting reads this attribute;
    if that fails, Arrow sends the name of the class instead.
    """

    @property
    def __suppress_context__(self) -> bool:
        raise AttributeError


class INVALID_ARGUMENT(_WithoutTrace, pa.ArrowInvalid):  # type: ignore[misc]  # noqa: N801
    """Arrow's error for gRPC's INVALID_ARGUMENT. Callers see the class name."""


class UNIMPLEMENTED(_WithoutTrace, pa.ArrowNotImplementedError):  # type: ignore[misc]
    """Arrow's error for gRPC's UNIMPLEMENTED. Callers see the class name."""


def to_flight(error: FfqError, text: str | None = None) -> Any:
    """Return the exception that a Flight method raises for an error.

    >>> type(to_flight(errors.NotRegistered("map output not registered"))).__name__
    'FlightServerError'
    """
    text = str(error) if text is None else text
    if isinstance(error, Unauthenticated):
        return flight.FlightUnauthenticatedError(text)
    if isinstance(error, Forbidden):
        return flight.FlightUnauthorizedError(text)
    if isinstance(error, Unavailable):
        return flight.FlightUnavailableError(text)
    if error.error_class is ErrorClass.CONFIG:
        return INVALID_ARGUMENT(text)
    if error.error_class is ErrorClass.UNSUPPORTED:
        return UNIMPLEMENTED(text)
    if error.error_class is ErrorClass.PLANNING:
        return flight.FlightServerError(text, extra_info=rich_status(FAILED_PRECONDITION, text))
    return flight.FlightInternalError(text, extra_info=rich_status(INTERNAL, text))


def rich_status(code: int, text: str) -> bytes:
    """Encode a google.rpc.Status with a code and a message as protobuf.

    >>> rich_status(9, "no")
    b'\\x08\\t\\x12\\x02no'
    """
    message = text.encode(errors="replace")
    varint, rest = b"", len(message)
    while rest > 127:
        varint += bytes([rest & 127 | 128])
        rest >>= 7
    return bytes([0x08, code, 0x12]) + varint + bytes([rest]) + message


def from_flight(error: Exception) -> FfqError | None:
    """Return the error that a service sent, or None if the text has no code of ffq_spark.

    >>> from_flight(Exception("[FFQ_FENCED] late. Run the write again; its rows were not added"))
    Fenced('[FFQ_FENCED] late. Run the write again; its rows were not added')
    """
    match = _CODED.match(_CLIENT_SUFFIX.sub("", str(error)))
    if match is None:
        return None
    code, text = match.groups()
    error_type = _types_by_code().get(code)
    if error_type is None:
        return FfqError(text if code == FfqError.code else f"{code}: {text}")
    message = text.removesuffix(f". {error_type.remedy}")
    # A text without the remedy of its class contains a remedy of its own.
    return error_type(message, remedy="" if message == text else None)


def _types_by_code() -> dict[str, type[FfqError]]:
    types: list[Any] = [value for value in vars(errors).values() if isinstance(value, type)]
    return {t.code: t for t in types if issubclass(t, FfqError) and "code" in vars(t)}
