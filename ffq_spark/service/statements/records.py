"""Records of statements on storage: who submitted them, and how they ended.

The record of an end is created once: it never changes, and outlives the server.
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
"""How long a server counts as alive after it last renewed its record."""

_MESSAGE_LENGTH = 2_000


@dataclass(frozen=True)
class SubmitRecord(JsonRecord):
    """A submitted statement and its owner. Its text is not stored: it may contain secrets."""

    query: int
    owner: str
    submitted_at_ms: int
    server: str = ""


@dataclass(frozen=True)
class AliveRecord(JsonRecord):
    """A server with active statements, and when it last renewed this record."""

    server: str
    at_ms: int


@dataclass(frozen=True)
class EndRecord(JsonRecord):
    """How a statement ended."""

    query: int
    state: str
    message: str
    who: str
    at_ms: int


class StatementRecords:
    """The records below one results root.

    >>> records = StatementRecords(Store("memory://doc-statement-records"))
    >>> records.submit(7, "etl")
    >>> records.end(7, QueryState.CANCELED, "enough", "etl").message
    'enough'
    >>> records.end(7, QueryState.FAILED, "too late", "etl").message
    'enough'
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._server = f"server-{secrets.token_hex(8)}"

    def submit(self, query: int, owner: str) -> None:
        """Record that this server accepted a statement."""
        record = SubmitRecord(query, owner, now_ms(), self._server)
        self._store.create_once(_submit_path(query), record.encode())

    def read(self, query: int) -> tuple[SubmitRecord, EndRecord | None]:
        """Read a statement's records; raise QueryNotFound if there are none."""
        submitted = self._submitted(query)
        if submitted is None:
            message = f"there is no statement {query}, or its result has expired"
            raise QueryNotFound(message, remedy="Submit the statement again")
        return submitted, self.ended(query)

    def _submitted(self, query: int) -> SubmitRecord | None:
        data = self._store.read_optional(_submit_path(query))
        return None if data is None else SubmitRecord.decode(data, _submit_path(query))

    def ended(self, query: int) -> EndRecord | None:
        """Read how a statement ended, or return None before its end."""
        data = self._store.read_optional(_end_path(query))
        return None if data is None else EndRecord.decode(data, _end_path(query))

    def end(self, query: int, state: QueryState, message: str, who: str) -> EndRecord:
        """Record a statement's end unless it has one, and return the record that counts."""
        record = EndRecord(query, state.name, message[:_MESSAGE_LENGTH], who, now_ms())
        self._store.create_once(_end_path(query), record.encode())
        return self.ended(query) or record

    def renew(self) -> None:
        """Record that this server is alive."""
        record = AliveRecord(self._server, now_ms())
        self._store.replace(_alive_path(self._server), record.encode())

    def release(self) -> None:
        """Delete the record that this server is alive: it has no active statements."""
        self._store.delete(_alive_path(self._server))

    def is_active_elsewhere(self, submitted: SubmitRecord) -> bool:
        """Return whether another live server may be running a statement that has not ended."""
        if submitted.server in ("", self._server):
            return False
        # A server accepts a statement before it first renews its record.
        last_seen = max(self._renewed_at_ms(submitted.server), submitted.submitted_at_ms)
        return now_ms() < last_seen + ALIVE_SECONDS * 1000

    def _renewed_at_ms(self, server: str) -> int:
        data = self._store.read_optional(_alive_path(server))
        return 0 if data is None else AliveRecord.decode(data, _alive_path(server)).at_ms

    def delete_expired(self, ttl: int, is_active: Callable[[int], bool]) -> None:
        """Delete results and records of statements that ended, or were lost, `ttl` seconds ago."""
        before = now_ms() - ttl * 1000
        for query in set(self._queries()):
            if is_active(query) or query_time_ms(query) > before:
                continue
            try:
                if self._is_expired(query, before):
                    self._delete(query)
            except CorruptRecord as error:
                logger.warning("results: keep query %d, whose record is corrupt: %s", query, error)

    def _is_expired(self, query: int, before: int) -> bool:
        ended = self.ended(query)
        if ended is not None:
            return ended.at_ms <= before
        submitted = self._submitted(query)
        return submitted is None or not self.is_active_elsewhere(submitted)

    def _queries(self) -> Iterator[int]:
        """Yield the numbers with a record. Other files in the root are not ffq_spark's."""
        for entry in self._store.list(""):
            query = paths.parse_number(entry.name.partition(".")[0])
            if query is not None and entry.name in (_submit_path(query), _end_path(query)):
                yield query

    def _delete(self, query: int) -> None:
        for directory in self._store.tree(str(query)):
            self._store.delete_many([name for name, _ in directory.files])
            self._store.delete_directories([directory.path])
        self._store.delete(_submit_path(query))
        self._store.delete(_end_path(query))


def _submit_path(query: int) -> str:
    return f"{query}.submitted.json"


def _alive_path(server: str) -> str:
    return f"{server}.alive.json"


def _end_path(query: int) -> str:
    return f"{query}.ended.json"
