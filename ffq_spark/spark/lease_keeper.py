"""Renew the leases of a driver's roots.

A write takes the first lease of its root once its options have been accepted. Renewals keep that
lease, and create one only for a query that has begun, because a write that is refused must leave
nothing at its root.

Each root's lease is renewed in its own thread, so that neither the storage of another root nor
other work of the steward delays it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from ffq_spark.exchange.ledger import leases
from ffq_spark.format import paths
from ffq_spark.format.records import QueryRecord
from ffq_spark.options import storage_options
from ffq_spark.store import Store

logger = logging.getLogger("ffq_spark.steward")

_JOIN_SECONDS = 2.0
# Without a lease, a renewal reads the records of at most this many queries, in turn.
_RECORDS_PER_RENEWAL = 20


class LeaseKeeper:
    """The roots that a driver has written, with a lease on each root that has open queries."""

    def __init__(self) -> None:
        self._roots: dict[str, _Root] = {}
        self._initiator = ""
        self._seconds = 30

    def start(self, initiator: str, seconds: int) -> None:
        """Set the initiator that owns the leases, and their duration."""
        self._initiator, self._seconds = initiator, seconds

    def add(self, root: str, storage: Mapping[str, str]) -> None:
        """Add a root, or replace its storage options, because credentials expire."""
        known = self._roots.get(root)
        if known is None:
            self._roots[root] = _Root(root, storage)
        elif known.storage != storage:
            known.store = Store(root, storage_options(storage))
            known.storage = dict(storage)

    def start_renewing(self, root: str, query: int) -> None:
        """Renew the root's lease, if any, now and on each beat as long as the query is open."""
        known = self._roots[root]
        if query not in known.queries:
            known.queries.add(query)
            known.renew(self._initiator, self._seconds)

    def stop_renewing(self, root: str, query: int) -> None:
        """Stop renewing the root's lease for this query."""
        self._roots[root].queries.discard(query)

    def beat(self) -> None:
        """Renew the leases of all roots with open queries, without waiting for storage."""
        for root in list(self._roots.values()):
            if root.queries:
                root.renew(self._initiator, self._seconds)

    def has_store(self, root: str) -> bool:
        """Return whether a root was added; a root that cannot be opened never is."""
        return root in self._roots

    def store(self, root: str) -> Store:
        """Return the store of a root, with its newest options."""
        return self._roots[root].store

    def stores(self) -> list[Store]:
        """Return the stores of all roots."""
        return [root.store for root in list(self._roots.values())]

    def release(self) -> None:
        """Release all leases, after waiting for running renewals, which would restore them."""
        for root in list(self._roots.values()):
            root.release(self._initiator)


class _Root:
    """One root, its open queries, and the thread that renews its lease."""

    def __init__(self, root: str, storage: Mapping[str, str]) -> None:
        self.store = Store(root, storage_options(storage))
        self.storage = dict(storage)
        self.queries: set[int] = set()
        self._lock = threading.Lock()
        self._is_taken = False
        self._is_due = False
        self._last_checked = 0
        self._released = False
        self._thread: threading.Thread | None = None

    def renew(self, initiator: str, seconds: int) -> None:
        """Renew the lease in the background, or right after a renewal that is still running."""
        with self._lock:
            if self._released:
                return
            self._is_due = True
            if self._thread is None:
                thread = threading.Thread(
                    target=self._renew, args=(initiator, seconds), daemon=True
                )
                try:
                    thread.start()
                except RuntimeError as error:
                    # The process or the machine has too many threads; the next beat retries.
                    logger.warning("the lease of %s was not renewed: %s", self.store.root, error)
                else:
                    self._thread = thread

    def _renew(self, initiator: str, seconds: int) -> None:
        while self._take_due():
            try:
                self._is_taken = (
                    self._is_taken
                    or leases.is_taken(self.store, initiator)
                    or self._has_begun(initiator)
                )
                if self._is_taken:
                    leases.renew(self.store, initiator, seconds)
            except Exception as error:
                # The next beat retries.
                logger.warning("the lease of %s was not renewed: %s", self.store.root, error)

    def _has_begun(self, initiator: str) -> bool:
        """Return whether an open query has a record that promises a lease.

        gc may delete a lapsed lease just after a write has renewed it. A refused write has no
        record.
        """
        known = sorted(self.queries)
        later = [query for query in known if query > self._last_checked]
        for query in (later or known)[:_RECORDS_PER_RENEWAL]:
            self._last_checked = query
            path = paths.query(query)
            data = self.store.read_optional(path)
            if data is not None:
                record = QueryRecord.decode(data, self.store.url(path))
                if record.lease_seconds and record.initiator == initiator:
                    return True
        return False

    def _take_due(self) -> bool:
        """Return whether a renewal is due, and clear the flag; forget the thread if none is."""
        with self._lock:
            is_due = self._is_due and not self._released
            self._is_due = False
            if not is_due:
                self._thread = None
            return is_due

    def release(self, initiator: str) -> None:
        with self._lock:
            self._released = True
            thread = self._thread
        if thread is not None:
            thread.join(_JOIN_SECONDS)
        try:
            leases.release(self.store, initiator)
        except Exception as error:
            logger.warning("the lease of %s was not released: %s", self.store.root, error)
