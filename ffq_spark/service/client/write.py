"""Write a step through a service."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from ffq_spark.errors import (
    Canceled,
    CommitUnknown,
    ExchangeMismatch,
    Fenced,
    FfqError,
    Lost,
    QueryEnded,
    ReplayMismatch,
    Rows,
    Unavailable,
)
from ffq_spark.exchange.compute.batch_sizes import resize
from ffq_spark.exchange.compute.plain_size import plain_size
from ffq_spark.service.client.channel import Channel
from ffq_spark.service.client.retries import Retries
from ffq_spark.service.wire.messages import Attempt, Done

_MESSAGE_BYTES = 4 << 20
# Errors that say how a query has ended, whichever call ended it.
_ENDS = (Canceled, Fenced, Lost, QueryEnded, ReplayMismatch)


class RemoteWrite:
    """A write in progress. Many processes may upload its map outputs; one of them commits.

    Each process makes its own `RemoteWrite(connection, exchange, query, schema)`.
    """

    def __init__(self, channel: Channel, exchange: str, query: int, schema: pa.Schema) -> None:
        self._channel = channel
        self._exchange = exchange
        self._schema = schema
        self.query = query

    def put(
        self, map_task: int, batches: Iterable[pa.RecordBatch] | pa.Table, attempt: int = 0
    ) -> dict[str, Any]:
        """Upload the rows of one map task. Attempt 0 makes a new attempt: repeat failed uploads."""
        target = Attempt(self._exchange, self.query, map_task, attempt)
        descriptor = flight.FlightDescriptor.for_command(target.encode())
        rows = batches.to_batches() if isinstance(batches, pa.Table) else batches
        source = _SourceBatches(rows, self._schema)
        try:
            return self._channel.call(lambda: self._upload(descriptor, source), retries=Retries(0))
        except Exception:
            # The caller's own error caused whatever the service or the channel raised after it.
            if source.error is not None:
                raise source.error from None
            raise

    def _upload(self, descriptor: Any, batches: Iterable[pa.RecordBatch]) -> dict[str, Any]:
        channel = self._channel
        writer, answers = channel.client.do_put(descriptor, self._schema, channel.options)
        try:
            rows = 0
            # The service measures a batch without its dictionaries.
            for batch in resize(batches, _MESSAGE_BYTES, plain_size):
                writer.write_batch(batch)
                rows += batch.num_rows
            writer.write_metadata(Done(rows).encode())
            writer.done_writing()
            answer = answers.read()
        except (flight.FlightError, pa.ArrowException):
            # The service has refused the rows; closing the stream raises its reason.
            writer.close()
            raise
        except BaseException:
            with contextlib.suppress(Exception):
                writer.close()
            raise
        writer.close()
        if answer is None:
            raise Unavailable("the upload was cut off before the service answered")
        summary: dict[str, Any] = json.loads(answer.to_pybytes())
        return summary

    def register(self, map_task: int, attempt: int) -> dict[str, Any]:
        """Register an attempt that was written to the exchange's storage directly."""
        return self._action("RegisterMapOutput", map_task=map_task, attempt=attempt)

    def heartbeat(self) -> None:
        """Renew the lease of this write; needed if it uploads nothing for minutes.

        Raises QueryEnded or Canceled if the write has ended.
        """
        self._action("Heartbeat")

    def commit(self, map_tasks: int) -> dict[str, Any]:
        """Commit the rows of all map tasks as one step. A commit may be repeated."""
        retries = self._channel.retries()
        try:
            return self._action("CommitQuery", retries=retries, map_tasks=map_tasks)
        except FfqError as error:
            if _is_certain(error, after_loss=retries.failures > 0):
                raise
            raise CommitUnknown(f"query {self.query}: {error.message}") from error

    def abort(self, reason: str = "aborted by its producer") -> dict[str, Any]:
        """Abort the write; none of its rows become visible."""
        return self._action("AbortQuery", reason=reason)

    def _action(
        self, name: str, *, retries: Retries | None = None, **arguments: Any
    ) -> dict[str, Any]:
        body = {"exchange": self._exchange, "query": self.query, **arguments}
        answer: dict[str, Any] = self._channel.action(name, body, retries=retries)
        return answer


def _is_certain(error: FfqError, *, after_loss: bool) -> bool:
    """Return whether the error of a commit says what becomes of the rows.

    After a lost answer the rows may be visible, whatever has failed since then.

    >>> from ffq_spark.errors import BadCommit
    >>> _is_certain(BadCommit("no map task 1"), after_loss=False)
    True
    >>> _is_certain(BadCommit("no map task 1"), after_loss=True)
    False
    """
    if isinstance(error, Unavailable) or error.rows is Rows.UNKNOWN:
        return isinstance(error, CommitUnknown)
    return not after_loss or error.rows is not Rows.NEVER or isinstance(error, _ENDS)


class _SourceBatches:
    """Iterate over the caller's batches, and keep the error if iterating fails.

    >>> batch = pa.record_batch({"a": [1]})
    >>> list(_SourceBatches([batch], pa.schema([("b", pa.int64())])))
    Traceback (most recent call last):
    ffq_spark.errors.ExchangeMismatch: [FFQ_EXCHANGE_MISMATCH] a batch has the columns a int64, \
not b int64. Use the exchange's own columns and settings (`ffq-spark show ROOT`), or write to a \
new root
    """

    def __init__(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
        self._batches = batches
        self._schema = schema
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._batches:
                if not batch.schema.equals(self._schema):
                    actual, expected = map(_columns, (batch.schema, self._schema))
                    raise ExchangeMismatch(f"a batch has the columns {actual}, not {expected}")
                yield batch
        except Exception as error:
            self.error = error
            raise


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
