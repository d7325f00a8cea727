"""The Flight server: decode, authorize, answer and count each call."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from ffq_spark.errors import BadRequest, FfqError
from ffq_spark.exchange.exchange import Exchange
from ffq_spark.options import ServeOptions
from ffq_spark.service.auth.access import Access
from ffq_spark.service.auth.tokens import Tokens
from ffq_spark.service.server.actions import Actions
from ffq_spark.service.server.activity import Activity
from ffq_spark.service.server.authentication import Authenticator
from ffq_spark.service.server.calls import ACCESS, CallWrapper, refuse_large
from ffq_spark.service.server.permissions import Permissions
from ffq_spark.service.server.prefetch import prefetch_one
from ffq_spark.service.server.read_plans import Plan, ReadPlanner, shard_of
from ffq_spark.service.server.reader_streams import ReaderStream
from ffq_spark.service.server.remote_writes import RemoteWrites
from ffq_spark.service.server.roots import Roots
from ffq_spark.service.server.row_streams import OpenBatches, RowStreams
from ffq_spark.service.server.uploads import Uploads
from ffq_spark.service.statements.results_root import RESULTS
from ffq_spark.service.statements.statements import Statements
from ffq_spark.service.wire.messages import (
    Attempt,
    Fetch,
    Message,
    Read,
    Results,
    Task,
    decode_one,
)

# Threads that prefetch batches for all readers in turn. One thread for each reader would use more
# memory than most readers' batches.
_PREFETCH_THREADS = 8


class ExchangeServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serve exchanges over Arrow Flight, from construction until `stop`."""

    def __init__(
        self,
        location: str,
        roots: Roots,
        options: ServeOptions,
        *,
        tokens: Tokens | None = None,
        statements: Statements | None = None,
        **tls: Any,
    ) -> None:
        self._roots = roots
        self._options = options
        self.activity = Activity.start(options, statements)
        self._permissions = Permissions(statements)
        self._planner = ReadPlanner(roots)
        self._streams = RowStreams(roots, options)
        self._writes = RemoteWrites(roots, options)
        self._uploads = Uploads(options, self.activity)
        self._actions = Actions(roots, self._permissions, self._writes, self.activity)
        self._wrapper = CallWrapper(roots, self.activity)
        self._prefetchers = ThreadPoolExecutor(_PREFETCH_THREADS, thread_name_prefix="ffq-ahead")
        authenticator = Authenticator(tokens, self.activity.totals)
        super().__init__(location, middleware={ACCESS: authenticator}, **tls)

    def stop(self) -> None:
        """Refuse waiting readers and writers, then wait until all calls have ended."""
        self.activity.readers.close()
        self.activity.writers.close()
        self.shutdown()

    # Flight calls these methods. Each of them runs inside `CallWrapper.call`.

    def list_flights(self, context: Any, criteria: bytes) -> Iterator[Any]:
        """List the exchanges with a name prefix that the caller may read."""
        with self._wrapper.call("list_flights", context) as access:
            self._check_size(criteria)
            prefix = _decode_text(criteria)
            # Storage of roots that the caller may not read is not touched.
            names = self._roots.exchanges(lambda root: access.allows("read", root))
            listing = [self._listing(name) for name in names if name.startswith(prefix)]
        return iter(listing)

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        """Plan a read and return its schema, totals and a ticket for each read task."""
        with self._wrapper.call("get_flight_info", context) as access:
            plan = self._plan(access, self._decode_descriptor(descriptor))
            tickets = [task.encode() for task in plan.tasks()]
            endpoints = [flight.FlightEndpoint(ticket, []) for ticket in tickets]
            return _flight_info(plan, descriptor, endpoints)

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        """Return the schema of a read."""
        with self._wrapper.call("get_schema", context) as access:
            plan = self._plan(access, self._decode_descriptor(descriptor))
            return flight.SchemaResult(plan.schema)

    def do_get(self, context: Any, ticket: Any) -> Any:
        """Stream the rows of a ticket."""
        with self._wrapper.call("do_get", context) as access:
            self._check_size(ticket.ticket)
            message = decode_one(ticket.ticket, Task, Fetch, Results)
            schema, open_batches = self._open(access, message)
            stream = ReaderStream(
                lambda end_idle: self._send(open_batches, context, end_idle),
                self._options.max_idle,
            )
            return flight.GeneratorStream(schema, stream)

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Write the uploaded rows as one attempt of a map task, and register it."""
        with self._wrapper.call("do_put", context) as access:
            self._check_size(descriptor.command or b"")
            target = Attempt.decode(descriptor.command or b"{}")
            self._permissions.require(access, "write", target.exchange)
            with (
                self._uploads.incoming(reader) as messages,
                self.activity.writers.slot(context.is_cancelled),
            ):
                answer = self._writes.put(target, self._uploads.batches(messages))
            writer.write(pa.py_buffer(json.dumps(answer).encode()))

    def do_action(self, context: Any, action: Any) -> Iterable[bytes]:
        """Run an action and return its answer as JSON."""
        name = action.type if action.type in self._actions.names else "unknown"
        with self._wrapper.call(f"do_action {name}", context) as access:
            body = action.body.to_pybytes()
            self._check_size(body)
            answer = self._actions.run(access, action.type, body, context.is_cancelled)
            return [json.dumps(answer).encode()]

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        """List the actions with their descriptions."""
        with self._wrapper.call("list_actions", context):
            return self._actions.descriptions()

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Refuse the call: the service does not use Flight's bidirectional streams."""
        with self._wrapper.call("do_exchange", context):
            raise BadRequest("the service does not support do_exchange: use do_get or do_put")

    def _check_size(self, request: bytes) -> None:
        refuse_large(request, self._options.max_request_bytes)

    def _decode_descriptor(self, descriptor: Any) -> Read | Results:
        if descriptor.descriptor_type == flight.DescriptorType.PATH:
            return Read("/".join(_decode_text(name) for name in descriptor.path or []))
        self._check_size(descriptor.command or b"")
        message = decode_one(descriptor.command or b"", Read, Results)
        assert isinstance(message, (Read, Results))
        return message

    def _plan(self, access: Access, request: Read | Results) -> Plan:
        if isinstance(request, Results):
            request = Read(f"{RESULTS}/{request.query}")
        self._permissions.require(access, "read", request.exchange)
        return self._planner.plan(request)

    def _open(self, access: Access, ticket: Message) -> tuple[pa.Schema, OpenBatches]:
        """Return a ticket's schema, and a function that starts reading its rows."""
        if isinstance(ticket, Fetch):
            self._permissions.require(access, "read", ticket.exchange)
            return self._streams.part(ticket)
        if isinstance(ticket, Results):
            plan = self._plan(access, ticket)
            return plan.schema, self._streams.rows(plan, plan.parts)
        assert isinstance(ticket, Task)
        self._permissions.require(access, "read", ticket.exchange)
        plan, parts = self._planner.plan_task(ticket)
        shard = shard_of(ticket, plan.exchange)
        open_rows = self._streams.rows(plan, parts, ticket.skip, shard)
        return plan.schema, lambda: self._planner.detect_stale(ticket, open_rows())

    def _send(
        self, open_batches: OpenBatches, context: Any, end_idle: Callable[[], None]
    ) -> Generator[pa.RecordBatch, None, None]:
        """Yield the batches of a stream once it has a reader slot."""
        with self._wrapper.stream(context, end_idle):
            for batch in prefetch_one(open_batches(), self._prefetchers):
                self.activity.calls.refuse_stopped()
                self.activity.totals.count_sent(rows=batch.num_rows, size=batch.nbytes)
                yield batch

    def _listing(self, name: str) -> Any:
        """Return the flight info of an exchange, or of the error that keeps it from being read."""
        descriptor = flight.FlightDescriptor.for_path(*name.split("/"))
        try:
            info = Exchange(name, store=self._roots.store(name)).info()
        except FfqError as error:
            text = self._wrapper.public_text("list_flights", error)
            metadata = json.dumps({"error": text}).encode()
            return flight.FlightInfo(pa.schema([]), descriptor, [], -1, -1, app_metadata=metadata)
        metadata = _metadata(info.step, info.keys, info.partitions)
        return flight.FlightInfo(
            info.schema, descriptor, [], info.rows, info.bytes, app_metadata=metadata
        )


def _flight_info(plan: Plan, descriptor: Any, endpoints: list[Any]) -> Any:
    rows, size = (sum(plan.parts[name].to_pylist()) for name in ("rows", "bytes"))
    return flight.FlightInfo(
        plan.schema,
        descriptor,
        endpoints,
        rows if plan.is_row_count_exact else -1,
        size,
        ordered=True,
        app_metadata=_metadata(plan.step, plan.exchange.keys, plan.exchange.partitions),
    )


def _metadata(step: int, keys: Iterable[str], partitions: int) -> bytes:
    return json.dumps({"step": step, "keys": list(keys), "partitions": partitions}).encode()


def _decode_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadRequest("a name in the request is not valid UTF-8") from None
