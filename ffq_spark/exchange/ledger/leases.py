"""Leases: who is alive, as far as storage can tell.

A lease only ever decides whether a query may be *fenced*. A query that is fenced too early, because
two clocks disagree or its driver slept, loses its commit with an error, never its readers' rows.
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
"""How often a lease is renewed in the time that it lasts."""
# A query without a lease (no plugin) gets this long before anybody may call it lost.
UNLEASED_MS = 24 * 3600 * 1000


def renew(store: Store, initiator: str, seconds: int) -> None:
    """Say that an initiator is alive."""
    record = LeaseRecord(initiator, seconds, now_ms())
    store.replace(paths.lease(initiator), record.encode())


@contextmanager
def kept(renewed: Callable[[], None], seconds: int) -> Iterator[None]:
    """Renew a lease of so many seconds again and again, until the block is left.

    >>> with kept(lambda: None, 300):
    ...     pass
    """
    done = threading.Event()

    def keep() -> None:
        while not done.wait(seconds / RENEWALS):
            try:
                renewed()
            except Exception as error:
                # Storage may fail for a moment; there are further attempts before the lease ends.
                logger.warning("a lease was not renewed: %s", error)

    keeper = threading.Thread(target=keep, name="ffq-lease", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        done.set()
        keeper.join()


def release(store: Store, initiator: str) -> None:
    """Say that an initiator has nothing more to do."""
    store.delete(paths.lease(initiator))


def read(store: Store, initiator: str) -> LeaseRecord | None:
    """An initiator's lease, if it has one."""
    path = paths.lease(initiator)
    data = store.read_optional(path)
    return None if data is None else LeaseRecord.decode(data, store.url(path))


def is_active(store: Store, query: QueryRecord, now: int) -> bool:
    """Whether a query without an outcome may still be at work."""
    if not query.lease_seconds:
        return now < query.created_at_ms + UNLEASED_MS
    lease = read(store, query.initiator)
    # A query is opened just after its lease was renewed: its own time counts as a renewal.
    opened = query.created_at_ms + query.lease_seconds * 1000
    return now < max(opened, lease.expires_at_ms if lease else 0)
