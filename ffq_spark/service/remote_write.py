"""Writing a step through a service."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from ffq_spark.errors import CommitUnknown, ExchangeMismatch, Unavailable
from ffq_spark.exchange.compute.batch_sizes import resize
from ffq_spark.service.line import Line
from ffq_spark.service.wire import Attempt, Done

_UPLOAD_BYTES = 4 << 20


class RemoteWrite:
    """A step in the making. Its map outputs may come from many processes: each opens its own by
    `RemoteWrite(connection, exchange, query, schema)`, and one of them commits."""

    def __init__(self, line: Line, exchange: str, query: int, schema: pa.Schema) -> None:
        self._line = line
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
        own = _Batches(rows, self._schema)
        try:
            return self._line.call(lambda: self._put(descriptor, own), retry=False)
        except Exception:
            # What the service or the line make of it comes second.
            if own.error is not None:
                raise own.error from None
            raise

    def _put(self, descriptor: Any, rows: Iterable[pa.RecordBatch]) -> dict[str, Any]:
        line = self._line
        writer, answers = line.client.do_put(descriptor, self._schema, line.options)
        try:
            count = 0
            for batch in resize(rows, _UPLOAD_BYTES):
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
            with contextlib.suppress(Exception):
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
        """Seal the step: all of it becomes visible, or nothing. A commit may be repeated."""
        try:
            return self._act("CommitQuery", map_tasks=map_tasks)
        except Unavailable as error:
            # The request may have arrived, with its answer lost.
            raise CommitUnknown(f"query {self.query}: {error.message}") from error

    def abort(self, reason: str = "aborted by its producer") -> dict[str, Any]:
        """Give up; nothing becomes visible."""
        return self._act("AbortQuery", reason=reason)

    def _act(self, name: str, **body: Any) -> dict[str, Any]:
        given = {"exchange": self._exchange, "query": self.query, **body}
        found: dict[str, Any] = self._line.action(name, given)
        return found


class _Batches:
    """The caller's batches, and the error that they ended with, if it is their own.

    >>> batch = pa.record_batch({"a": [1]})
    >>> list(_Batches([batch], pa.schema([("b", pa.int64())])))
    Traceback (most recent call last):
    ffq_spark.errors.ExchangeMismatch: [FFQ_EXCHANGE_MISMATCH] a batch has the columns a int64, \
not b int64. Write with the exchange's own settings, or to a new root
    """

    def __init__(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
        self._batches = batches
        self._schema = schema
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._batches:
                if not batch.schema.equals(self._schema):
                    found, wanted = map(_columns, (batch.schema, self._schema))
                    raise ExchangeMismatch(f"a batch has the columns {found}, not {wanted}")
                yield batch
        except Exception as error:
            self.error = error
            raise


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
