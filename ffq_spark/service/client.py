"""`ffq.connect`: exchanges and queries of a service, with neither Spark nor its storage at hand."""

from __future__ import annotations

import base64
import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.flight as flight

from ffq_spark.errors import BadOption, TimedOut, Unavailable
from ffq_spark.service.reading import sized
from ffq_spark.service.statuses import from_flight
from ffq_spark.service.wire import Attempt, Done, Fetch, Read, Results, Task

_RETRIES = 8
_LONGEST_WAIT = 2.0
_UPLOAD_BYTES = 4 << 20
_POLL_SECONDS = 0.2

Answer = TypeVar("Answer")


def connect(
    url: str,
    token: str | None = None,
    *,
    tls_ca: str | None = None,
    tls_certificate: str | None = None,
    tls_key: str | None = None,
    retries: int = _RETRIES,
) -> Connection:
    """Connect to a service: `grpc://host:port`, or with TLS `grpc+tls://host:port`.

    `tls_ca`, `tls_certificate` and `tls_key` are PEM files. Reads that are cut off, also by a
    server that is started anew, go on where they were, up to `retries` times without a new row.

    >>> from ffq_spark.service.service import serve
    >>> from ffq_spark.examples import tiny_exchange
    >>> with serve({"tiny": tiny_exchange().root}, port=0) as service:
    ...     connect(service.url).exchange("tiny").lookup(4).to_pylist()
    [{'id': 4, 'name': 'row 4'}]
    """
    given = {
        "tls_root_certs": _pem(tls_ca, "tls_ca"),
        "cert_chain": _pem(tls_certificate, "tls_certificate"),
        "private_key": _pem(tls_key, "tls_key"),
    }
    try:
        client = flight.FlightClient(url, **{k: v for k, v in given.items() if v is not None})
    except (pa.ArrowException, ValueError) as error:
        raise BadOption(f"{url}: {error}", option="url") from None
    return Connection(client, token, retries)


def _pem(path: str | None, option: str) -> bytes | None:
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise BadOption(f"{path}: {type(error).__name__}", option=option) from None


class Connection:
    """A service, as its callers see it. Threads may share one."""

    def __init__(self, client: Any, token: str | None, retries: int) -> None:
        self.client = client
        self._retries = retries
        bearer = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
        self.options = flight.FlightCallOptions(headers=bearer)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self.client.close()

    def exchanges(self, prefix: str = "") -> list[str]:
        """The names of the exchanges that this caller may read."""

        def listed() -> list[str]:
            found = self.client.list_flights(prefix.encode(), self.options)
            return ["/".join(n.decode() for n in info.descriptor.path) for info in found]

        return self.call(listed)

    def exchange(self, name: str) -> RemoteExchange:
        """An exchange of the service."""
        return RemoteExchange(self, name)

    def submit(self, sql: str | None = None, *, view: str | None = None) -> RemoteQuery:
        """Give the service's Spark a query, as SQL or by the name of a view."""
        body = {"sql": sql, "view": view}
        told = {name: value for name, value in body.items() if value is not None}
        return RemoteQuery(self, self.action("SubmitQuery", told, retry=False)["query"])

    def query(self, number: int) -> RemoteQuery:
        """A query that was submitted before."""
        return RemoteQuery(self, number)

    def health(self) -> dict[str, Any]:
        """Whether the service works, and how busy it is."""
        found: dict[str, Any] = self.action("Health", {})
        return found

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
            try:
                reader = self.client.do_get(flight.Ticket(_after(ticket, rows)), self.options)
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


class RemoteExchange:
    """An exchange behind a service: its rows, and writing to it."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self.name = name

    def __repr__(self) -> str:
        return f"RemoteExchange({self.name!r})"

    def flight_info(self, **options: Any) -> Any:
        """Flight's description of a read: schema, rows, bytes, and an endpoint for each task."""
        command = _read(self.name, options).encode()
        descriptor = flight.FlightDescriptor.for_command(command)
        connection = self._connection
        return connection.call(
            lambda: connection.client.get_flight_info(descriptor, connection.options)
        )

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self.flight_info().schema

    def tasks(self, **options: Any) -> list[bytes]:
        """A ticket for each read task of one snapshot: read them anywhere, in any order."""
        return [end.ticket.ticket for end in self.flight_info(**options).endpoints]

    def read_task(self, ticket: bytes) -> Iterator[pa.RecordBatch]:
        """The rows of one ticket."""
        return self._connection.stream(ticket)

    def read(self, **options: Any) -> pa.RecordBatchReader:
        """The rows, batch by batch, as `Exchange.read` gives them.

        Options are `columns`, `partitions`, `steps`, `as_of_step`, `query`, `stage`, `attempt`,
        `key`, `metadata_columns`, `consolidate`, `target_partition_bytes`, `min_tasks`,
        `max_tasks`. The snapshot is the one of the moment of this call.
        """
        info = self.flight_info(**options)
        tickets = [end.ticket.ticket for end in info.endpoints]
        batches = (b for ticket in tickets for b in self._connection.stream(ticket))
        return pa.RecordBatchReader.from_batches(info.schema, batches)

    def lookup(self, key: Any, **options: Any) -> pa.Table:
        """All rows of one key: only the partition that can hold it is opened."""
        values = list(key) if isinstance(key, (tuple, list)) else [key]
        return self.read(key=values, **options).read_all()

    def fetch(self, query: int, map_task: int, reduce: int, **place: Any) -> bytes:
        """The raw bytes of one part, as FFQ's FetchShufflePartition gives them.

        `stage`, `attempt` (0 is the latest), `start_offset`, `max_bytes` (0: to the end) and
        `chunk_bytes` are FFQ's.
        """
        ticket = Fetch(self.name, query, map_task, reduce, **place).encode()
        chunks = (batch.column(0).to_pylist() for batch in self._connection.stream(ticket))
        return b"".join(chunk for column in chunks for chunk in column)

    def fetch_batches(self, query: int, map_task: int, reduce: int, **place: Any) -> pa.Table:
        """The rows of one part."""
        ticket = Fetch(self.name, query, map_task, reduce, raw=False, **place).encode()
        return pa.Table.from_batches(list(self._connection.stream(ticket)))

    def status(self, query: int) -> dict[str, Any]:
        """Where a query that writes to this exchange stands."""
        body = {"exchange": self.name, "query": query}
        found: dict[str, Any] = self._connection.action("GetQueryStatus", body)
        return found

    def cancel(self, query: int, reason: str) -> dict[str, Any]:
        """Ask for the end of a query that writes to this exchange; its initiator ends it."""
        body = {"exchange": self.name, "query": query, "reason": reason}
        found: dict[str, Any] = self._connection.action("CancelQuery", body)
        return found

    def check(self) -> dict[int, str]:
        """The queries that are no longer active, and why."""
        found = self._connection.action("Check", {"exchange": self.name})
        return {int(query): why for query, why in found["inactive"].items()}

    def begin(
        self, schema: pa.Schema, mode: str = "append", **options: str | int | Sequence[str]
    ) -> RemoteWrite:
        """Open a write; options are those of a Spark write: `keys`, `partitions`, ….

        >>> from ffq_spark.service.service import serve
        >>> rows = pa.record_batch({"k": [1, 2, 3]})
        >>> with serve({"made": "memory://doc-remote"}, port=0, writable=True) as service:
        ...     write = connect(service.url).exchange("made").begin(
        ...         rows.schema, keys="k", partitions=2
        ...     )
        ...     _ = write.put(0, [rows])
        ...     write.commit(map_tasks=1)["rows"]
        3
        """
        body = {
            "exchange": self.name,
            "schema": base64.b64encode(schema.serialize()).decode(),
            "mode": mode,
            "options": {name: _option(value) for name, value in options.items()},
        }
        told = self._connection.action("BeginQuery", body, retry=False)
        return RemoteWrite(self._connection, self.name, told["query"], schema)


class RemoteWrite:
    """A step in the making. Its map outputs may come from many processes: each opens its own by
    `RemoteWrite(connection, exchange, query, schema)`, and one of them commits."""

    def __init__(
        self, connection: Connection, exchange: str, query: int, schema: pa.Schema
    ) -> None:
        self._connection = connection
        self._exchange = exchange
        self._schema = schema
        self.query = query

    def put(
        self, map_task: int, batches: Iterable[pa.RecordBatch] | pa.Table, attempt: int = 0
    ) -> dict[str, Any]:
        """Upload one map task's rows; attempt 0 is a new one, so that an upload may be repeated."""
        place = Attempt(self._exchange, self.query, map_task, attempt)
        descriptor = flight.FlightDescriptor.for_command(place.encode())
        rows = batches.to_batches() if isinstance(batches, pa.Table) else batches
        return self._connection.call(lambda: self._put(descriptor, rows), retry=False)

    def _put(self, descriptor: Any, rows: Iterable[pa.RecordBatch]) -> dict[str, Any]:
        connection = self._connection
        writer, answers = connection.client.do_put(descriptor, self._schema, connection.options)
        try:
            count = 0
            for batch in sized(rows, _UPLOAD_BYTES):
                writer.write_batch(batch)
                count += batch.num_rows
            writer.write_metadata(Done(count).encode())
            writer.done_writing()
            answer = answers.read()
        except (flight.FlightError, pa.ArrowException):
            # The service has refused the rows; it says why when the stream is closed.
            writer.close()
            raise
        except BaseException:
            with contextlib.suppress(pa.ArrowException):
                writer.close()
            raise
        writer.close()
        if answer is None:
            raise Unavailable("the upload was cut off")
        done: dict[str, Any] = json.loads(answer.to_pybytes())
        return done

    def register(self, map_task: int, attempt: int) -> dict[str, Any]:
        """Register an attempt that was written to the exchange's storage directly."""
        return self._act("RegisterMapOutput", map_task=map_task, attempt=attempt)

    def heartbeat(self) -> None:
        """Say that this write is alive, if nothing is uploaded for minutes."""
        self._act("Heartbeat")

    def commit(self, map_tasks: int) -> dict[str, Any]:
        """Seal the step: all of it becomes visible, or nothing."""
        return self._act("CommitQuery", map_tasks=map_tasks)

    def abort(self, reason: str = "aborted by its producer") -> dict[str, Any]:
        """Give up; nothing becomes visible."""
        return self._act("AbortQuery", reason=reason)

    def _act(self, name: str, **body: Any) -> dict[str, Any]:
        given = {"exchange": self._exchange, "query": self.query, **body}
        found: dict[str, Any] = self._connection.action(name, given)
        return found


class RemoteQuery:
    """A query on the service's Spark."""

    def __init__(self, connection: Connection, query: int) -> None:
        self._connection = connection
        self.query = query

    def status(self) -> dict[str, Any]:
        """Its state (QUEUED, RUNNING, SUCCEEDED, FAILED, CANCELED), message and times."""
        found: dict[str, Any] = self._connection.action("GetQueryStatus", {"query": self.query})
        return found

    def cancel(self, reason: str) -> dict[str, Any]:
        """End it."""
        body = {"query": self.query, "reason": reason}
        found: dict[str, Any] = self._connection.action("CancelQuery", body)
        return found

    def wait(self, seconds: float = float("inf")) -> dict[str, Any]:
        """Its status once it has ended."""
        deadline = time.monotonic() + seconds
        while (found := self.status())["state"] in ("QUEUED", "RUNNING"):
            if time.monotonic() > deadline:
                raise TimedOut(f"query {self.query} is {found['state']} after {seconds} s")
            time.sleep(_POLL_SECONDS)
        return found

    def result(self) -> pa.RecordBatchReader:
        """Its rows, as a stream, once it has succeeded; else the error that it ended with."""
        self.wait()
        connection = self._connection
        descriptor = flight.FlightDescriptor.for_command(Results(self.query).encode())
        info = connection.call(
            lambda: connection.client.get_flight_info(descriptor, connection.options)
        )
        tickets = [end.ticket.ticket for end in info.endpoints]
        batches = (b for ticket in tickets for b in connection.stream(ticket))
        return pa.RecordBatchReader.from_batches(info.schema, batches)


def _read(exchange: str, options: Mapping[str, Any]) -> Read:
    given = {name: value for name, value in options.items() if value is not None}
    columns = given.get("columns")
    if isinstance(columns, str):
        given["columns"] = [name.strip() for name in columns.split(",")]
    partitions = given.get("partitions")
    if isinstance(partitions, Iterable) and not isinstance(partitions, str):
        partitions = ",".join(map(str, partitions))
    if partitions is not None:
        given["partitions"] = str(partitions)
    for name in ("steps", "attempt"):
        if name in given:
            given[name] = str(given[name])
    lists = {k: list(v) for k, v in given.items() if k in ("columns", "key")}
    return Read.of({"exchange": exchange, **given, **lists})


def _option(value: str | int | Sequence[str]) -> str:
    return str(value) if isinstance(value, (str, int)) else ",".join(value)
