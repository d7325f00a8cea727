"""What storage knows of callers' queries: whose they are, and how they ended.

An end is create-once: it never changes, and outlives the server.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ffq_spark.errors import CorruptRecord, QueryNotFound
from ffq_spark.exchange.attempts.status import QueryState
from ffq_spark.format import paths
from ffq_spark.format.ids import now_ms, query_time_ms
from ffq_spark.format.records import JsonRecord
from ffq_spark.store import Store

logger = logging.getLogger("ffq_spark.service")

ALIVE_SECONDS = 60
"""For so long after its last word a server counts as being at work."""

_MESSAGE_LENGTH = 2_000


@dataclass(frozen=True)
class SubmitRecord(JsonRecord):
    """A query that was taken, and whose it is. Its text is not kept: it may hold secrets."""

    query: int
    owner: str
    submitted_at_ms: int
    server: str = ""


@dataclass(frozen=True)
class AliveRecord(JsonRecord):
    """A server that has queries at work, and when it said so."""

    server: str
    at_ms: int


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
        self._server = f"server-{secrets.token_hex(8)}"

    def submitted(self, query: int, owner: str) -> None:
        """A query was taken."""
        record = SubmitRecord(query, owner, now_ms(), self._server)
        self._store.create_once(_submitted(query), record.encode())

    def of(self, query: int) -> tuple[SubmitRecord, EndRecord | None]:
        """What is known of a query."""
        submitted = self._submitted(query)
        if submitted is None:
            raise QueryNotFound(f"there is no query {query}, or its result was removed")
        return submitted, self.ended(query)

    def _submitted(self, query: int) -> SubmitRecord | None:
        data = self._store.read_optional(_submitted(query))
        return None if data is None else SubmitRecord.decode(data, _submitted(query))

    def ended(self, query: int) -> EndRecord | None:
        """How a query ended, if it has."""
        data = self._store.read_optional(_end(query))
        return None if data is None else EndRecord.decode(data, _end(query))

    def end(self, query: int, state: QueryState, message: str, who: str) -> EndRecord:
        """End a query, unless it has ended: the first word is the last."""
        record = EndRecord(query, state.name, message[:_MESSAGE_LENGTH], who, now_ms())
        self._store.create_once(_end(query), record.encode())
        return self.ended(query) or record

    def renew(self) -> None:
        """Say that this server is at work."""
        self._store.replace(_alive(self._server), AliveRecord(self._server, now_ms()).encode())

    def release(self) -> None:
        """Say that this server has nothing more to do."""
        self._store.delete(_alive(self._server))

    def is_elsewhere(self, submitted: SubmitRecord) -> bool:
        """Whether another server may be at work on a query that has not ended."""
        if submitted.server in ("", self._server):
            return False
        # A server takes a query before it first says that it is at work.
        heard = max(self._heard_of(submitted.server), submitted.submitted_at_ms)
        return now_ms() < heard + ALIVE_SECONDS * 1000

    def _heard_of(self, server: str) -> int:
        data = self._store.read_optional(_alive(server))
        return 0 if data is None else AliveRecord.decode(data, _alive(server)).at_ms

    def remove_old(self, ttl: int, is_live: Callable[[int], bool]) -> None:
        """Remove queries that ended, or were lost, longer ago than so many seconds."""
        before = now_ms() - ttl * 1000
        for query in set(self._queries()):
            if is_live(query) or query_time_ms(query) > before:
                continue
            try:
                if self._is_old(query, before):
                    self._remove(query)
            except CorruptRecord as error:
                logger.warning("query %d is kept: %s", query, error)

    def _is_old(self, query: int, before: int) -> bool:
        ended = self.ended(query)
        if ended is not None:
            return ended.at_ms <= before
        submitted = self._submitted(query)
        return submitted is None or not self.is_elsewhere(submitted)

    def _queries(self) -> Iterator[int]:
        """Those with a record: whatever else lies here is somebody else's, numbers too."""
        for entry in self._store.list(""):
            query = paths.parse_number(entry.name.partition(".")[0])
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


def _alive(server: str) -> str:
    return f"{server}.alive.json"


def _end(query: int) -> str:
    return f"{query}.ended.json"
