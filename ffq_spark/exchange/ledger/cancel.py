"""Cancel a query in two steps: anyone creates a request, and the initiator ends the query."""

from __future__ import annotations

import getpass
import os
import socket

from ffq_spark.errors import Canceled, QueryEnded, QueryNotFound
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.format import paths
from ffq_spark.format.ids import now_ms
from ffq_spark.format.records import CancelRecord, Outcome, OutcomeRecord
from ffq_spark.store import Store

USER_CANCELED = "USER_CANCELED"


def whoami() -> str:
    """Describe the caller: user, host and process."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):
        # In a container a user may have an id but no name.
        user = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    return f"{user}@{socket.gethostname()}:{os.getpid()}"


def request_cancel(
    store: Store, query: int, message: str, code: str = USER_CANCELED, who: str | None = None
) -> CancelRecord:
    """Request the end of a query; the first request stays, and is returned to every caller."""
    ended = Ledger(store).outcome(query)
    if ended is not None:
        raise QueryEnded(f"query {query} has ended already as {ended.outcome.value}")
    if store.read_optional(paths.query(query)) is None:
        raise QueryNotFound(f"there is no query {query}", path=store.url(paths.QUERIES))
    record = CancelRecord(query, who or whoami(), code, message, now_ms())
    if store.create_once(paths.cancel(query), record.encode()):
        return record
    return read_cancel(store, query) or record


def read_cancel(store: Store, query: int) -> CancelRecord | None:
    """Read the request to cancel a query, or return None."""
    path = paths.cancel(query)
    data = store.read_optional(path)
    return None if data is None else CancelRecord.decode(data, store.url(path))


def refuse_canceled(store: Store, query: int) -> None:
    """Raise Canceled if a request to cancel the query exists: such a query must not commit."""
    request = read_cancel(store, query)
    if request is not None:
        raise Canceled(f"canceled by {request.who}: {request.message}")


def end_unfinished(store: Store, query: int, reason: str) -> OutcomeRecord:
    """End an unfinished query: as canceled if a request to cancel it exists, else as aborted."""
    request = read_cancel(store, query)
    ledger = Ledger(store)
    if request is None:
        return ledger.end(query, Outcome.ABORTED, reason)
    return ledger.end(query, Outcome.CANCELED, request.message, code=request.code, who=request.who)
