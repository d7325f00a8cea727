"""Errors on the wire: FFQ's classes as status codes, and back into errors at the client.

The text begins with the error's code, so that every client can tell errors apart. Where Flight has
no status of its own for FFQ's FAILED_PRECONDITION, it travels as google.rpc.Status in the trailer
`grpc-status-details-bin`, which is where gRPC's richer clients look.
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
# What Flight's client adds to a message.
_ADDED = re.compile(
    r"(\. Detail: |\. gRPC client debug context: |\. Client context: ).*", re.DOTALL
)


class _Untraced:
    """Arrow sends the stack trace of an error that is not Flight's own. If it cannot be formatted,
    because this attribute cannot be had, Arrow sends the error's name instead."""

    @property
    def __suppress_context__(self) -> bool:
        raise AttributeError


class INVALID_ARGUMENT(_Untraced, pa.ArrowInvalid):  # type: ignore[misc]  # noqa: N801
    """Named for what the caller sees of it."""


class UNIMPLEMENTED(_Untraced, pa.ArrowNotImplementedError):  # type: ignore[misc]
    """Named for what the caller sees of it."""


def to_flight(error: FfqError, text: str | None = None) -> Any:
    """What Flight is to raise for an error of ours.

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
    """A google.rpc.Status of a code and a message, in protobuf's bytes.

    >>> rich_status(9, "no")
    b'\\x08\\t\\x12\\x02no'
    """
    message = text.encode(errors="replace")
    length, rest = b"", len(message)
    while rest > 127:
        length += bytes([rest & 127 | 128])
        rest >>= 7
    return bytes([0x08, code, 0x12]) + length + bytes([rest]) + message


def from_flight(error: Exception) -> FfqError | None:
    """The error that a service meant, or None if it is not one of ours.

    >>> from_flight(Exception("[FFQ_FENCED] late. Run the write again; its rows were not added"))
    Fenced('[FFQ_FENCED] late. Run the write again; its rows were not added')
    """
    found = _CODED.match(_ADDED.sub("", str(error)))
    if found is None:
        return None
    kind = _by_code().get(found[1], FfqError)
    return kind(found[2].removesuffix(f". {kind.remedy}"))


def _by_code() -> dict[str, type[FfqError]]:
    kinds: list[Any] = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    return {k.code: k for k in kinds if issubclass(k, FfqError) and "code" in vars(k)}
