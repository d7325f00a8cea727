"""The Flight server: each call is let in, taken apart, answered, and counted."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from ffq_spark.errors import BadRequest, FfqError, Forbidden, Unavailable
from ffq_spark.exchange.exchange import Exchange
from ffq_spark.options import ServeOptions
from ffq_spark.service import reading
from ffq_spark.service.access import Access, Tokens
from ffq_spark.service.actions import Actions
from ffq_spark.service.batching import one_ahead
from ffq_spark.service.counters import Counters
from ffq_spark.service.doorman import Doorman
from ffq_spark.service.gate import Calls, Gate
from ffq_spark.service.producing import Producing
from ffq_spark.service.queries import RESULTS, Queries
from ffq_spark.service.reading import Reading
from ffq_spark.service.roots import Roots
from ffq_spark.service.sending import Batches, Sending
from ffq_spark.service.statuses import to_flight
from ffq_spark.service.wire import Attempt, Done, Fetch, Message, Read, Results, Task, decode_one

logger = logging.getLogger("ffq_spark.service")

_ACCESS = "access"
# Threads that make batches, for all readers in turn: one for each would cost more memory than most
# of them hold.
_MAKERS = 8
_UNEXPECTED = "[FFQ_ERROR] the service failed in a way it should not; its log says how"


class ExchangeServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serves exchanges; it runs from its construction to `shutdown`."""

    def __init__(
        self,
        location: str,
        roots: Roots,
        options: ServeOptions,
        *,
        tokens: Tokens | None = None,
        queries: Queries | None = None,
        **tls: Any,
    ) -> None:
        self._roots = roots
        self._options = options
        self._reading = Reading(roots)
        self._producing = Producing(roots, options)
        self._queries = queries
        self.counters = Counters()
        self.calls = Calls()
        self.readers = Gate("readers", options.max_readers, options.max_wait)
        self.writers = Gate("writers", options.max_writers, options.max_wait)
        self._makers = ThreadPoolExecutor(_MAKERS, thread_name_prefix="ffq-ahead")
        self._sending = Sending(roots, options)
        self._actions = Actions(self)
        doorman = Doorman(tokens, self.counters)
        super().__init__(location, middleware={_ACCESS: doorman}, **tls)

    def stop(self) -> None:
        """Refuse readers and writers who wait in line, then wait until all calls have ended."""
        self.readers.close()
        self.writers.close()
        self.shutdown()

    @property
    def producing(self) -> Producing:
        return self._producing

    @property
    def queries(self) -> Queries | None:
        return self._queries

    @property
    def roots(self) -> Roots:
        return self._roots

    def allow(self, access: Access, scope: str, exchange: str) -> None:
        """Refuse what the caller's token does not allow, or what is another's result."""
        access.require(scope, exchange)
        root, _, query = exchange.partition("/")
        if root != RESULTS:
            return
        if scope != "read":
            raise Forbidden("results are written by the service alone")
        if self._queries is not None:
            self._queries.allow_results(access, query)

    # What Flight calls. Every one of them goes through `_call`.

    def list_flights(self, context: Any, criteria: bytes) -> Iterator[Any]:
        with self._call("list_flights", context) as access:
            self._check_size(criteria)
            prefix = _text(criteria)
            names = [name for name in self._roots.exchanges() if name.startswith(prefix)]
            found = [self._listed(name) for name in names if access.allows("read", name)]
        return iter(found)

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        with self._call("get_flight_info", context) as access:
            plan = self._plan(access, self._asked(descriptor))
            tasks = list(plan.tasks())
            endpoints = [flight.FlightEndpoint(task.encode(), []) for task, _ in tasks]
            return self._info(plan, descriptor, endpoints)

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        with self._call("get_schema", context) as access:
            plan = self._plan(access, self._asked(descriptor))
            return flight.SchemaResult(plan.schema)

    def do_get(self, context: Any, ticket: Any) -> Any:
        with self._call("do_get", context) as access:
            self._check_size(ticket.ticket)
            message = decode_one(ticket.ticket, Task, Fetch, Results)
            schema, batches = self._opened(access, message)
            return flight.GeneratorStream(schema, self._streamed(batches))

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        with self._call("do_put", context) as access:
            self._check_size(descriptor.command or b"")
            place = Attempt.decode(descriptor.command or b"{}")
            self.allow(access, "write", place.exchange)
            with self.writers.inside():
                done = self._producing.put(place, reader.schema, self._uploaded(reader))
            writer.write(pa.py_buffer(json.dumps(done).encode()))

    def do_action(self, context: Any, action: Any) -> Iterable[bytes]:
        name = action.type if action.type in self._actions.names else "unknown"
        with self._call(f"do_action {name}", context) as access:
            body = action.body.to_pybytes()
            self._check_size(body)
            return [json.dumps(self._actions.run(access, action.type, body)).encode()]

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        with self._call("list_actions", context):
            return self._actions.described()

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        with self._call("do_exchange", context):
            raise BadRequest("this service has no do_exchange")

    # How calls are answered.

    @contextmanager
    def _call(self, method: str, context: Any) -> Iterator[Access]:
        """One call: let in, counted, and its errors told without paths or stack traces."""
        with self._told(method), self.calls.one():
            yield context.get_middleware(_ACCESS).access

    @contextmanager
    def _told(self, method: str) -> Iterator[None]:
        status = "OK"
        try:
            yield
        except FfqError as error:
            status = error.code
            raise to_flight(error, self._roots.hide(str(error))) from None
        except (flight.FlightError, pa.ArrowException) as error:
            # Of a caller that has gone, or sends what is no Arrow.
            status = type(error).__name__
            logger.info("%s: %s", method, error)
            raise flight.FlightServerError(f"[FFQ_BAD_REQUEST] {type(error).__name__}") from None
        except GeneratorExit:
            status = "CLOSED"
            raise
        except Exception:
            status = "FFQ_ERROR"
            logger.exception("%s failed", method)
            raise flight.FlightInternalError(_UNEXPECTED) from None
        finally:
            self.counters.call(method, status)

    def _check_size(self, data: bytes) -> None:
        if len(data) > self._options.max_request_bytes:
            limit = self._options.max_request_bytes
            raise BadRequest(f"{len(data)} bytes, of which {limit} are taken")

    def _asked(self, descriptor: Any) -> Read | Results:
        if descriptor.descriptor_type == flight.DescriptorType.PATH:
            return Read("/".join(_text(name) for name in descriptor.path or []))
        self._check_size(descriptor.command or b"")
        found = decode_one(descriptor.command or b"", Read, Results)
        assert isinstance(found, (Read, Results))
        return found

    def _plan(self, access: Access, asked: Read | Results) -> reading.Plan:
        if isinstance(asked, Results):
            asked = Read(f"{RESULTS}/{asked.query}")
        self.allow(access, "read", asked.exchange)
        return self._reading.plan(asked)

    def _opened(self, access: Access, message: Message) -> tuple[pa.Schema, Batches]:
        """What a ticket gives: its columns, and its rows once somebody wants them."""
        if isinstance(message, Fetch):
            self.allow(access, "read", message.exchange)
            return self._sending.part(message)
        if isinstance(message, Results):
            plan = self._plan(access, message)
            return plan.schema, self._sending.rows(plan, plan.parts)
        assert isinstance(message, Task)
        self.allow(access, "read", message.exchange)
        plan, parts = self._reading.task(message)
        rows = self._sending.rows(plan, parts, message.skip)
        return plan.schema, lambda: self._reading.rows_of(message, rows())

    def _streamed(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Rows on their way out: in line with other readers."""
        with self._told("stream"), self.calls.one(), self.readers.inside():
            for batch in one_ahead(batches(), self._makers):
                if self.calls.stopping:
                    raise Unavailable("the service is shutting down")
                self.counters.sent(rows=batch.num_rows, size=batch.nbytes)
                yield batch

    def _uploaded(self, reader: Any) -> Iterator[pa.RecordBatch]:
        """An upload's batches; one that ends without saying so was cut off."""
        limit, rows, done = self._options.max_upload_bytes, 0, None
        for chunk in reader:
            batch = chunk.data
            if chunk.app_metadata is not None:
                done = Done.decode(chunk.app_metadata.to_pybytes())
            if batch is None:
                continue
            rows += batch.num_rows
            if batch.nbytes > limit:
                raise BadRequest(f"a batch of {batch.nbytes} bytes, of which {limit} are taken")
            if self.calls.stopping:
                raise Unavailable("the service is shutting down")
            self.counters.taken(rows=batch.num_rows, size=batch.nbytes)
            yield batch
        if done is None or done.rows != rows:
            raise BadRequest(f"the upload ended after {rows} rows without saying that it is whole")

    def _info(self, plan: reading.Plan, descriptor: Any, endpoints: list[Any]) -> Any:
        totals = [sum(plan.parts[name].to_pylist()) for name in ("rows", "bytes")]
        exchange = plan.exchange
        told = {"step": plan.step, "keys": exchange.keys, "partitions": exchange.partitions}
        return flight.FlightInfo(
            plan.schema,
            descriptor,
            endpoints,
            totals[0] if plan.exact else -1,
            totals[1],
            ordered=True,
            app_metadata=json.dumps(told).encode(),
        )

    def _listed(self, name: str) -> Any:
        """An exchange at a glance; one that is broken is listed with its error."""
        descriptor = flight.FlightDescriptor.for_path(*name.split("/"))
        try:
            found = Exchange(name, store=self._roots.store(name)).info()
        except FfqError as error:
            told: dict[str, Any] = {"error": self._roots.hide(str(error))}
            metadata = json.dumps(told).encode()
            return flight.FlightInfo(pa.schema([]), descriptor, [], -1, -1, app_metadata=metadata)
        told = {"step": found.step, "keys": found.keys, "partitions": found.partitions}
        metadata = json.dumps(told).encode()
        schema, totals = found.schema, (found.rows, found.bytes)
        return flight.FlightInfo(schema, descriptor, [], *totals, app_metadata=metadata)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadRequest("a name that is no UTF-8") from None
