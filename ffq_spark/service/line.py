"""One caller's line to a service: calls that are tried again, streams that go on."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.flight as flight

from ffq_spark.errors import Unavailable
from ffq_spark.service.statuses import from_flight
from ffq_spark.service.wire import Message, Task

_LONGEST_WAIT = 2.0

Answer = TypeVar("Answer")


class Line:
    """A connection, and the caller's token. Threads may share one."""

    def __init__(self, client: Any, token: str | None, retries: int) -> None:
        self.client = client
        self._retries = retries
        bearer = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
        self.options = flight.FlightCallOptions(headers=bearer)

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self.client.close()

    def info(self, asked: Message) -> Any:
        """Flight's description of a read: schema, rows, bytes, and an endpoint for each task."""
        descriptor = flight.FlightDescriptor.for_command(asked.encode())
        return self.call(lambda: self.client.get_flight_info(descriptor, self.options))

    def rows(self, info: Any) -> pa.RecordBatchReader:
        """All rows of what was described."""
        tickets = [end.ticket.ticket for end in info.endpoints]
        batches = (batch for ticket in tickets for batch in self.stream(ticket))
        return pa.RecordBatchReader.from_batches(info.schema, batches)

    def action(self, name: str, body: Mapping[str, Any], *, retry: bool = True) -> Any:
        """Carry out an action; without `retry` at most once."""
        action = flight.Action(name, json.dumps(body).encode())

        def act() -> Any:
            (result,) = self.client.do_action(action, self.options)
            return json.loads(result.body.to_pybytes())

        return self.call(act, retry=retry)

    def call(self, work: Callable[[], Answer], *, retry: bool = True) -> Answer:
        """An answer, or the error that the service meant; a lost connection is tried again."""
        attempts = Attempts(self._retries if retry else 0)
        while True:
            try:
                return work()
            except (flight.FlightError, pa.ArrowException, OSError) as error:
                attempts.failed(error)

    def stream(self, ticket: bytes) -> Iterator[pa.RecordBatch]:
        """The rows of a ticket; a stream that is cut off goes on with the row that is next."""
        attempts, rows = Attempts(self._retries), 0
        while True:
            rest = flight.Ticket(_after(ticket, rows))
            try:
                reader = self.client.do_get(rest, self.options)
                for chunk in reader:
                    rows += chunk.data.num_rows
                    attempts.succeeded()
                    yield chunk.data
                return
            except (flight.FlightError, pa.ArrowException, OSError) as error:
                attempts.failed(error)


def _after(ticket: bytes, rows: int) -> bytes:
    if not rows:
        return ticket
    document = json.loads(ticket)
    if document.get("kind") != Task.kind():
        raise Unavailable("the connection was lost in the middle of a stream that cannot go on")
    return json.dumps({**document, "skip": document.get("skip", 0) + rows}).encode()


class Attempts:
    """How often in a row a call may fail for want of a connection, and how long it waits.

    >>> Attempts(0).failed(OSError("connection refused"))
    Traceback (most recent call last):
    ffq_spark.errors.Unavailable: [FFQ_UNAVAILABLE] connection refused. Try again in a moment
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._failed = 0

    def succeeded(self) -> None:
        self._failed = 0

    def failed(self, error: Exception) -> None:
        """Wait before the next attempt, or raise what the error means."""
        meant = from_flight(error)
        if meant is not None and not isinstance(meant, Unavailable):
            raise meant from None
        if self._failed >= self._limit:
            raise (meant or Unavailable(_first_line(error))) from error
        time.sleep(min(0.05 * 2**self._failed, _LONGEST_WAIT))
        self._failed += 1


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].partition(". gRPC client debug context")[0]
