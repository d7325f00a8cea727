"""Leases: records by which initiators show that they are alive.

A lease only decides whether a query may be *fenced*. A query that is fenced too early, because two
clocks disagree or its driver slept, fails its commit with an error; readers never lose rows.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ffq_spark.format import paths
from ffq_spark.format.ids import now_ms
from ffq_spark.format.records import LeaseRecord, QueryRecord
from ffq_spark.store import Store

logger = logging.getLogger(__name__)

RENEWALS = 4
"""Number of renewals during the time that a lease lasts."""
# A query without a lease (no plugin) may be called lost after this time.
UNLEASED_MS = 24 * 3600 * 1000


def renew(store: Store, initiator: str, seconds: int) -> None:
    """Renew the lease of an initiator for a number of seconds."""
    record = LeaseRecord(initiator, seconds, now_ms())
    store.replace(paths.lease(initiator), record.encode())


def take(store: Store, query: QueryRecord) -> None:
    """Take the lease of a query, if its record asks for one, once nothing can refuse the query."""
    if query.lease_seconds:
        renew(store, query.initiator, query.lease_seconds)


@contextmanager
def keep_renewed(renewed: Callable[[], None], seconds: int) -> Iterator[None]:
    """Keep renewing a lease of `seconds` in the background while the block runs.

    >>> with keep_renewed(lambda: None, 300):
    ...     pass
    """
    done = threading.Event()

    def keep() -> None:
        while not done.wait(seconds / RENEWALS):
            try:
                renewed()
            except Exception as error:
                # Storage may fail for a moment; the next renewal comes before the lease ends.
                logger.warning("a lease was not renewed: %s", error)

    keeper = threading.Thread(target=keep, name="ffq-lease", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        done.set()
        keeper.join()


def release(store: Store, initiator: str) -> None:
    """Delete the lease of an initiator that has finished."""
    store.delete(paths.lease(initiator))


def is_taken(store: Store, initiator: str) -> bool:
    """Return whether an initiator has a lease, which may be lapsed or damaged."""
    return store.read_optional(paths.lease(initiator)) is not None


def read(store: Store, initiator: str) -> LeaseRecord | None:
    """Read the lease of an initiator, or return None if it has none."""
    path = paths.lease(initiator)
    data = store.read_optional(path)
    return None if data is None else LeaseRecord.decode(data, store.url(path))


def is_active(store: Store, query: QueryRecord, now: int) -> bool:
    """Return whether a query without an outcome may still be running."""
    if not query.lease_seconds:
        return now < query.created_at_ms + UNLEASED_MS
    lease = read(store, query.initiator)
    # The lease is taken when the query has begun, so the query's own time counts as a renewal.
    opened = query.created_at_ms + query.lease_seconds * 1000
    return now < max(opened, lease.expires_at_ms if lease else 0)
