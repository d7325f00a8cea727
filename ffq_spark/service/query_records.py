"""What storage knows of callers' queries: whose they are, and how they ended.

An end is create-once: it never changes, and outlives the server.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ffq_spark.errors import CorruptRecord, QueryNotFound
from ffq_spark.exchange.status import QueryState
from ffq_spark.format import layout
from ffq_spark.format.ids import now_ms, query_time_ms
from ffq_spark.format.records import JsonRecord
from ffq_spark.store import Store

logger = logging.getLogger("ffq_spark.service")

_MESSAGE_LENGTH = 2_000


@dataclass(frozen=True)
class SubmitRecord(JsonRecord):
    """A query that was taken, and whose it is. Its text is not kept: it may hold secrets."""

    query: int
    owner: str
    submitted_at_ms: int


@dataclass(frozen=True)
class EndRecord(JsonRecord):
    """How a query ended."""

    query: int
    state: str
    message: str
    who: str
    at_ms: int


class QueryRecords:
    """The records below one results root.

    >>> records = QueryRecords(Store("memory://doc-query-records"))
    >>> records.submitted(7, "etl")
    >>> records.end(7, QueryState.CANCELED, "enough", "etl").message
    'enough'
    >>> records.end(7, QueryState.FAILED, "too late", "etl").message
    'enough'
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def submitted(self, query: int, owner: str) -> None:
        """A query was taken."""
        record = SubmitRecord(query, owner, now_ms())
        self._store.create_once(_submitted(query), record.encode())

    def of(self, query: int) -> tuple[SubmitRecord, EndRecord | None]:
        """What is known of a query."""
        path = _submitted(query)
        data = self._store.read_optional(path)
        if data is None:
            raise QueryNotFound(f"there is no query {query}, or its result was removed")
        return SubmitRecord.decode(data, path), self.ended(query)

    def ended(self, query: int) -> EndRecord | None:
        """How a query ended, if it has."""
        data = self._store.read_optional(_end(query))
        return None if data is None else EndRecord.decode(data, _end(query))

    def end(self, query: int, state: QueryState, message: str, who: str) -> EndRecord:
        """End a query, unless it has ended: the first word is the last."""
        record = EndRecord(query, state.name, message[:_MESSAGE_LENGTH], who, now_ms())
        self._store.create_once(_end(query), record.encode())
        return self.ended(query) or record

    def remove_old(self, ttl: int, is_live: Callable[[int], bool]) -> None:
        """Remove queries that ended, or were lost, longer ago than so many seconds."""
        before = now_ms() - ttl * 1000
        for query in set(self._queries()):
            if is_live(query) or query_time_ms(query) > before:
                continue
            try:
                ended = self.ended(query)
            except CorruptRecord as error:
                logger.warning("query %d is kept: %s", query, error)
                continue
            if ended is None or ended.at_ms <= before:
                self._remove(query)

    def _queries(self) -> Iterator[int]:
        """Those with a record: whatever else lies here is somebody else's, numbers too."""
        for entry in self._store.list(""):
            query = layout.parse_number(entry.name.partition(".")[0])
            if query is not None and entry.name in (_submitted(query), _end(query)):
                yield query

    def _remove(self, query: int) -> None:
        for directory in self._store.tree(str(query)):
            self._store.delete_many([name for name, _ in directory.files])
            self._store.delete_directories([directory.path])
        self._store.delete(_submitted(query))
        self._store.delete(_end(query))


def _submitted(query: int) -> str:
    return f"{query}.submitted.json"


def _end(query: int) -> str:
    return f"{query}.ended.json"
