"""An exchange of a service, as its client sees it: read it, and begin writes."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ffq_spark.service.client.channel import Channel
from ffq_spark.service.client.retries import Retries
from ffq_spark.service.client.write import RemoteWrite
from ffq_spark.service.wire.messages import Fetch, Read


class RemoteExchange:
    """An exchange of a service."""

    def __init__(self, channel: Channel, name: str) -> None:
        self._channel = channel
        self.name = name

    def __repr__(self) -> str:
        return f"RemoteExchange({self.name!r})"

    def flight_info(self, **options: Any) -> Any:
        """Plan a read: return Flight's schema, rows, bytes, and an endpoint for each read task."""
        return self._channel.info(_read_request(self.name, options))

    @property
    def schema(self) -> pa.Schema:
        """The columns of the exchange."""
        return self.flight_info().schema

    def tasks(self, **options: Any) -> list[bytes]:
        """Return a ticket for each read task of one snapshot. Read them anywhere, in any order."""
        return [endpoint.ticket.ticket for endpoint in self.flight_info(**options).endpoints]

    def read_task(self, ticket: bytes) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one ticket."""
        return self._channel.stream(ticket)

    def read(self, **options: Any) -> pa.RecordBatchReader:
        """Stream the rows of the snapshot at the time of this call, like `Exchange.read`.

        Options are `columns`, `partitions`, `steps`, `as_of_step`, `query`, `stage`, `attempt`,
        `key`, `metadata_columns`, `consolidate`, `merge_by`, `target_partition_bytes`,
        `min_tasks`, `max_tasks` and `split`.
        """
        return self._channel.rows(self.flight_info(**options))

    def lookup(self, key: Any, **options: Any) -> pa.Table:
        """Return all rows with a key; only the partition of the key is read."""
        # As a list, because `read` ignores options that are None, and None is a key as well.
        return self.read(key=_key_values(key), **options).read_all()

    def fetch(self, query: int, map_task: int, reduce: int, **options: Any) -> bytes:
        """Return the raw bytes of one part, like FFQ's FetchShufflePartition.

        Options are FFQ's `stage`, `attempt` (0: the latest), `start_offset`, `max_bytes` (0: to the
        end) and `chunk_bytes`.
        """
        ticket = Fetch(self.name, query, map_task, reduce, **options).encode()
        columns = (batch.column(0).to_pylist() for batch in self._channel.stream(ticket))
        return b"".join(chunk for column in columns for chunk in column)

    def fetch_batches(self, query: int, map_task: int, reduce: int, **options: Any) -> pa.Table:
        """Return the rows of one part; options are `stage` and `attempt` of `fetch`."""
        ticket = Fetch(self.name, query, map_task, reduce, raw=False, **options).encode()
        return pa.Table.from_batches(list(self._channel.stream(ticket)))

    def status(self, query: int) -> dict[str, Any]:
        """Return the state of a query that writes to this exchange."""
        return self._action("GetQueryStatus", query=query)

    def cancel(self, query: int, reason: str) -> dict[str, Any]:
        """Request the cancellation of a query that writes to this exchange."""
        return self._action("CancelQuery", query=query, reason=reason)

    def check(self) -> dict[int, str]:
        """Return the queries that are no longer active, with the reasons."""
        inactive = self._action("Check")["inactive"]
        return {int(query): reason for query, reason in inactive.items()}

    def begin(
        self, schema: pa.Schema, mode: str = "append", **options: str | int | Sequence[str]
    ) -> RemoteWrite:
        """Begin a write; options are those of a Spark write: `keys`, `partitions`, ….

        >>> from ffq_spark import connect, serve
        >>> rows = pa.record_batch({"k": [1, 2, 3]})
        >>> with serve({"made": "memory://doc-remote"}, port=0, writable=True) as service:
        ...     write = connect(service.url).exchange("made").begin(
        ...         rows.schema, keys="k", partitions=2
        ...     )
        ...     _ = write.put(0, [rows])
        ...     write.commit(map_tasks=1)["rows"]
        3
        """
        answer = self._action(
            "BeginQuery",
            retries=Retries(0),
            schema=base64.b64encode(schema.serialize()).decode(),
            mode=mode,
            options={name: _option_text(value) for name, value in options.items()},
        )
        return RemoteWrite(self._channel, self.name, answer["query"], schema)

    def _action(
        self, name: str, *, retries: Retries | None = None, **arguments: Any
    ) -> dict[str, Any]:
        body = {"exchange": self.name, **arguments}
        answer: dict[str, Any] = self._channel.action(name, body, retries=retries)
        return answer


def _read_request(exchange: str, options: Mapping[str, Any]) -> Read:
    """Build a request from the spellings of options that `Exchange.read` accepts.

    >>> request = _read_request("a", {"columns": "x, y", "partitions": [1, 2], "steps": None})
    >>> request.columns, request.partitions, request.steps
    (('x', 'y'), '1,2', None)
    """
    values = {name: value for name, value in options.items() if value is not None}
    for name in ("columns", "merge_by"):
        columns = values.get(name)
        if isinstance(columns, str):
            values[name] = [column.strip() for column in columns.split(",")]
        elif columns is not None:
            values[name] = list(columns)
    partitions = values.get("partitions")
    if isinstance(partitions, Iterable) and not isinstance(partitions, str):
        values["partitions"] = ",".join(map(str, partitions))
    for name in ("partitions", "steps", "attempt"):
        if name in values:
            values[name] = str(values[name])
    if "key" in values:
        values["key"] = _key_values(values["key"])
    return Read.from_document({"exchange": exchange, **values})


def _key_values(key: Any) -> list[Any]:
    """Return a key's values as a list. A string is one value."""
    return list(key) if isinstance(key, (tuple, list)) else [key]


def _option_text(value: str | int | Sequence[str]) -> str:
    return str(value) if isinstance(value, (str, int)) else ",".join(value)
