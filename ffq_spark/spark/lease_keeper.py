"""Renewing the leases of a driver's roots.

Each root's lease is renewed in a thread of its own: neither another root's storage nor any other
work of the steward delays it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from ffq_spark.exchange.ledger import leases
from ffq_spark.options import storage_options
from ffq_spark.store import Store

logger = logging.getLogger("ffq_spark.steward")

_JOIN_SECONDS = 2.0


class LeaseKeeper:
    """The roots that a driver has written, and the leases of those with queries under way."""

    def __init__(self) -> None:
        self._roots: dict[str, _Root] = {}
        self._initiator = ""
        self._seconds = 30

    def start(self, initiator: str, seconds: int) -> None:
        """Set whose leases these are and how long each lasts."""
        self._initiator, self._seconds = initiator, seconds

    def add(self, root: str, storage: Mapping[str, str]) -> None:
        """Remember a root. New storage options replace old ones: credentials expire."""
        known = self._roots.get(root)
        if known is None:
            self._roots[root] = _Root(root, storage)
        elif known.storage != storage:
            known.store = Store(root, storage_options(storage))
            known.storage = dict(storage)

    def opened(self, root: str, query: int) -> None:
        """Keep the root's lease until this query is settled, beginning now."""
        self._roots[root].queries.add(query)
        self._roots[root].renew(self._initiator, self._seconds)

    def settled(self, root: str, query: int) -> None:
        """Stop keeping the root's lease for this query."""
        self._roots[root].queries.discard(query)

    def beat(self) -> None:
        """Renew the leases of all roots with queries under way, without waiting for storage."""
        for root in list(self._roots.values()):
            if root.queries:
                root.renew(self._initiator, self._seconds)

    def store(self, root: str) -> Store:
        """The storage of a root, with the newest options."""
        return self._roots[root].store

    def stores(self) -> list[Store]:
        """The storage of every root."""
        return [root.store for root in list(self._roots.values())]

    def release(self) -> None:
        """Give all leases back; a renewal under way is waited for, else it would come after."""
        for root in list(self._roots.values()):
            root.release(self._initiator)


class _Root:
    """One root, its queries under way, and the thread that renews its lease."""

    def __init__(self, root: str, storage: Mapping[str, str]) -> None:
        self.store = Store(root, storage_options(storage))
        self.storage = dict(storage)
        self.queries: set[int] = set()
        self._lock = threading.Lock()
        self._wanted = False
        self._released = False
        self._thread: threading.Thread | None = None

    def renew(self, initiator: str, seconds: int) -> None:
        """Renew in the background. A renewal that took long is followed by the next at once."""
        with self._lock:
            if self._released:
                return
            self._wanted = True
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._renew, args=(initiator, seconds), daemon=True
                )
                self._thread.start()

    def _renew(self, initiator: str, seconds: int) -> None:
        while self._is_wanted():
            try:
                leases.renew(self.store, initiator, seconds)
            except Exception as error:
                # The next beat tries again.
                logger.warning("the lease of %s was not renewed: %s", self.store.root, error)

    def _is_wanted(self) -> bool:
        with self._lock:
            wanted = self._wanted and not self._released
            self._wanted = False
            if not wanted:
                self._thread = None
            return wanted

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
