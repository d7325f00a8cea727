"""An exchange behind a service: its rows, its parts, its queries, and writing to it."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ffq_spark.service.line import Line
from ffq_spark.service.remote_write import RemoteWrite
from ffq_spark.service.wire import Fetch, Read


class RemoteExchange:
    """An exchange behind a service: its rows, and writing to it."""

    def __init__(self, line: Line, name: str) -> None:
        self._line = line
        self.name = name

    def __repr__(self) -> str:
        return f"RemoteExchange({self.name!r})"

    def flight_info(self, **options: Any) -> Any:
        """Flight's description of a read: schema, rows, bytes, and an endpoint for each task."""
        return self._line.info(_read(self.name, options))

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self.flight_info().schema

    def tasks(self, **options: Any) -> list[bytes]:
        """A ticket for each read task of one snapshot: read them anywhere, in any order."""
        return [end.ticket.ticket for end in self.flight_info(**options).endpoints]

    def read_task(self, ticket: bytes) -> Iterator[pa.RecordBatch]:
        """The rows of one ticket."""
        return self._line.stream(ticket)

    def read(self, **options: Any) -> pa.RecordBatchReader:
        """The rows, batch by batch, as `Exchange.read` gives them.

        Options are `columns`, `partitions`, `steps`, `as_of_step`, `query`, `stage`, `attempt`,
        `key`, `metadata_columns`, `consolidate`, `target_partition_bytes`, `min_tasks`,
        `max_tasks`. The snapshot is the one of the moment of this call.
        """
        return self._line.rows(self.flight_info(**options))

    def lookup(self, key: Any, **options: Any) -> pa.Table:
        """All rows of one key: only the partition that can hold it is opened."""
        # None is a key as well; an option that is None was not given.
        return self.read(key=_values(key), **options).read_all()

    def fetch(self, query: int, map_task: int, reduce: int, **place: Any) -> bytes:
        """The raw bytes of one part, as FFQ's FetchShufflePartition gives them.

        `stage`, `attempt` (0 is the latest), `start_offset`, `max_bytes` (0: to the end) and
        `chunk_bytes` are FFQ's.
        """
        ticket = Fetch(self.name, query, map_task, reduce, **place).encode()
        chunks = (batch.column(0).to_pylist() for batch in self._line.stream(ticket))
        return b"".join(chunk for column in chunks for chunk in column)

    def fetch_batches(self, query: int, map_task: int, reduce: int, **place: Any) -> pa.Table:
        """The rows of one part."""
        ticket = Fetch(self.name, query, map_task, reduce, raw=False, **place).encode()
        return pa.Table.from_batches(list(self._line.stream(ticket)))

    def status(self, query: int) -> dict[str, Any]:
        """Where a query that writes to this exchange stands."""
        body = {"exchange": self.name, "query": query}
        found: dict[str, Any] = self._line.action("GetQueryStatus", body)
        return found

    def cancel(self, query: int, reason: str) -> dict[str, Any]:
        """Ask for the end of a query that writes to this exchange; its initiator ends it."""
        body = {"exchange": self.name, "query": query, "reason": reason}
        found: dict[str, Any] = self._line.action("CancelQuery", body)
        return found

    def check(self) -> dict[int, str]:
        """The queries that are no longer active, and why."""
        found = self._line.action("Check", {"exchange": self.name})
        return {int(query): why for query, why in found["inactive"].items()}

    def begin(
        self, schema: pa.Schema, mode: str = "append", **options: str | int | Sequence[str]
    ) -> RemoteWrite:
        """Open a write; options are those of a Spark write: `keys`, `partitions`, ….

        >>> from ffq_spark.service.client import connect
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
        told = self._line.action("BeginQuery", body, retry=False)
        return RemoteWrite(self._line, self.name, told["query"], schema)


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
    if "columns" in given:
        given["columns"] = list(given["columns"])
    if "key" in given:
        given["key"] = _values(given["key"])
    return Read.of({"exchange": exchange, **given})


def _values(key: Any) -> list[Any]:
    """A key's values: one that is alone is not taken apart, a text neither."""
    return list(key) if isinstance(key, (tuple, list)) else [key]


def _option(value: str | int | Sequence[str]) -> str:
    return str(value) if isinstance(value, (str, int)) else ",".join(value)
