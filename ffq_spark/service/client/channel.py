"""Call a service: retry calls, and resume streams after a lost connection."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.flight as flight

from ffq_spark.errors import Unavailable
from ffq_spark.service.client.retries import Retries
from ffq_spark.service.wire.messages import Message, Task

_CALL_ERRORS = (flight.FlightError, pa.ArrowException, OSError)

Answer = TypeVar("Answer")


class Channel:
    """A Flight client with the caller's token and retries. Threads may share one."""

    def __init__(self, client: Any, token: str | None, retries: int) -> None:
        self.client = client
        self._retries = retries
        headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
        self.options = flight.FlightCallOptions(headers=headers)

    def close(self) -> None:
        """Close the connection."""
        self.client.close()

    def info(self, request: Message) -> Any:
        """Plan a read: return Flight's schema, rows, bytes, and an endpoint for each read task."""
        descriptor = flight.FlightDescriptor.for_command(request.encode())
        return self.call(lambda: self.client.get_flight_info(descriptor, self.options))

    def rows(self, info: Any) -> pa.RecordBatchReader:
        """Stream the rows of all endpoints of a planned read."""
        tickets = [endpoint.ticket.ticket for endpoint in info.endpoints]
        batches = (batch for ticket in tickets for batch in self.stream(ticket))
        return pa.RecordBatchReader.from_batches(info.schema, batches)

    def action(self, name: str, body: Mapping[str, Any], *, retries: Retries | None = None) -> Any:
        """Run an action and return its answer; `retries` counts the tries without an answer."""
        action = flight.Action(name, json.dumps(body).encode())

        def send() -> Any:
            (result,) = self.client.do_action(action, self.options)
            return json.loads(result.body.to_pybytes())

        return self.call(send, retries=retries)

    def retries(self) -> Retries:
        """Return a new count of tries, up to the number for this channel."""
        return Retries(self._retries)

    def call(self, send: Callable[[], Answer], *, retries: Retries | None = None) -> Answer:
        """Return the answer to a call, or raise the service's error; retry lost connections."""
        retries = retries or self.retries()
        while True:
            try:
                return send()
            except _CALL_ERRORS as error:
                retries.wait_after(error)

    def stream(self, ticket: bytes) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a ticket; after a lost connection, resume with the next row."""
        retries, rows = self.retries(), 0
        while True:
            remaining = flight.Ticket(_skip_received(ticket, rows))
            try:
                for chunk in self.client.do_get(remaining, self.options):
                    rows += chunk.data.num_rows
                    retries.reset()
                    yield chunk.data
                return
            except _CALL_ERRORS as error:
                retries.wait_after(error)


def _skip_received(ticket: bytes, rows: int) -> bytes:
    """Return a ticket for the rows after the first `rows`.

    >>> _skip_received(b'{"kind": "task", "skip": 2}', 3)
    b'{"kind": "task", "skip": 5}'
    """
    if not rows:
        return ticket
    document = json.loads(ticket)
    if document.get("kind") != Task.kind():
        raise Unavailable("the connection was lost, and only streams of read tasks can be resumed")
    return json.dumps({**document, "skip": document.get("skip", 0) + rows}).encode()
