"""The process beside the driver: attempt log, leases, cancel requests, cleanup.

The plugin starts it with the first write and talks to it in lines of JSON on standard input; orders
to the driver go to standard output. It ends when its input does, however the driver ended. Leases
are renewed only while the driver says that it lives: one that hangs or is stopped loses them.

Nothing here imports pyspark: it runs beside Scala and SQL applications too.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import signal
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import IO, Any

from ffq_spark.errors import FfqError
from ffq_spark.exchange import leases
from ffq_spark.exchange.attempt_log import Event, write_events
from ffq_spark.exchange.cancel import read_cancel
from ffq_spark.exchange.cleanup import collect
from ffq_spark.exchange.ledger import Ledger
from ffq_spark.options import storage_options
from ffq_spark.store import Store

logger = logging.getLogger("ffq_spark.steward")

_POLL_SECONDS = 1.0
_FLUSH_EVENTS = 500
_GRACE_SECONDS = 8.0
# Events of a query that has ended may still come: its losing tasks end after it.
_LATE_BEATS = 6


@dataclass
class Query:
    """A query that this application has under way."""

    number: int
    store: Store
    pending: list[Event] = field(default_factory=list)
    pieces: int = 0
    canceled: bool = False
    ended: bool = False
    beats_left: int = _LATE_BEATS


class Steward:
    """Takes events one by one, and looks around between them."""

    def __init__(self, orders: IO[str]) -> None:
        self._orders = orders
        self._initiator = ""
        self._lease_seconds = 30
        self._cleanup: dict[str, Any] = {}
        self._next_cleanup = 0.0
        self._cleaner: threading.Thread | None = None
        self._stores: dict[str, Store] = {}
        self._queries: dict[int, Query] = {}

    def take(self, event: Event) -> None:
        """Handle one event of the driver's."""
        kind = event["event"]
        if kind == "hello":
            self._hello(event)
        elif kind == "open":
            self._open(event)
        elif kind == "beat":
            self._beat()
        elif kind == "bye":
            self.flush()
            for store in self._stores.values():
                self._try(leases.release, store, self._initiator)
        else:
            self._record(event)

    def _hello(self, event: Event) -> None:
        self._initiator = event["initiator"]
        self._lease_seconds = event["lease_seconds"]
        if event.get("cleanup"):
            self._cleanup = {
                "interval": event["cleanup_interval_seconds"],
                "ttl_ms": event["cleanup_ttl_seconds"] * 1000,
            }

    def _open(self, event: Event) -> None:
        root = event["root"]
        if root not in self._stores:
            self._stores[root] = Store(root, storage_options(event["storage"]))
        query = Query(event["query"], self._stores[root])
        self._queries.setdefault(query.number, query)
        self._try(leases.renew, self._stores[root], self._initiator, self._lease_seconds)

    def _record(self, event: Event) -> None:
        query = self._queries.get(event["query"])
        if query is None:
            return
        query.pending.append({k: v for k, v in event.items() if k not in ("root", "query")})
        # Not at every event beyond the limit: storage that fails would hold up everything else.
        if event["event"] == "job_end" or len(query.pending) % _FLUSH_EVENTS == 0:
            self._flush(query)

    def _beat(self) -> None:
        """The driver lives: renew the leases of roots with work under way."""
        busy = {id(q.store): q.store for q in self._queries.values() if not q.ended}
        for store in busy.values():
            self._try(leases.renew, store, self._initiator, self._lease_seconds)
        self.flush()
        for query in list(self._queries.values()):
            if query.ended:
                query.beats_left -= 1
                if query.beats_left <= 0 and not query.pending:
                    del self._queries[query.number]
            else:
                outcome = self._try(Ledger(query.store).outcome, query.number)
                query.ended = outcome is not None
        self._clean()

    def look_around(self) -> None:
        """Find requests to cancel, and tell the driver."""
        for query in self._queries.values():
            if query.canceled or query.ended:
                continue
            request = self._try(read_cancel, query.store, query.number)
            if request is not None:
                query.canceled = True
                message = f"[FFQ_CANCELED] canceled by {request.who}: {request.message}"
                order = {"order": "cancel", "query": query.number, "message": message}
                self._try(print, json.dumps(order), file=self._orders, flush=True)

    def flush(self) -> None:
        """Store what was recorded."""
        for query in self._queries.values():
            self._flush(query)

    def _flush(self, query: Query) -> None:
        if not query.pending:
            return
        place = (query.store, self._initiator, query.number, query.pieces + 1)
        if self._try(write_events, *place, query.pending, failed=True) is None:
            query.pieces += 1
            query.pending = []

    def _clean(self) -> None:
        busy = self._cleaner is not None and self._cleaner.is_alive()
        waits = busy or not self._stores or time.monotonic() < self._next_cleanup
        if not self._cleanup or waits:
            return
        self._next_cleanup = time.monotonic() + self._cleanup["interval"]
        self._cleaner = threading.Thread(target=self._sweep, daemon=True)
        self._cleaner.start()

    def _sweep(self) -> None:
        for store in list(self._stores.values()):
            report = self._try(collect, store, ttl_ms=self._cleanup["ttl_ms"])
            for problem in report.problems if report else ():
                logger.warning("cleanup of %s: %s", store.root, problem)

    def _try(self, work: Any, *arguments: Any, failed: Any = None, **options: Any) -> Any:
        """Storage may fail for a while; the steward goes on and tries again later."""
        try:
            return work(*arguments, **options)
        except (FfqError, OSError) as error:
            logger.warning("%s", error)
            return failed


def main() -> None:
    """Serve until the input ends."""
    logging.basicConfig(level=logging.WARNING, format="ffq_spark steward: %(message)s")
    # Ctrl-C reaches the whole group; the driver decides when this ends, by closing the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lines: queue.Queue[bytes | None] = queue.Queue()
    threading.Thread(target=_read, args=(sys.stdin.buffer, lines), daemon=True).start()
    steward = Steward(sys.stdout)
    next_look = 0.0
    while True:
        try:
            line = lines.get(timeout=_POLL_SECONDS)
            if line is None:
                break
            steward.take(json.loads(line))
        except queue.Empty:
            pass
        except Exception as error:
            # Whatever one event is: all leases depend on this process.
            logger.warning("an event is left out: %r", error)
        if time.monotonic() >= next_look:
            steward.look_around()
            next_look = time.monotonic() + _POLL_SECONDS
    steward.flush()


def _read(source: IO[bytes], lines: queue.Queue[bytes | None]) -> None:
    try:
        for line in source:
            lines.put(line)
    finally:
        lines.put(None)
        # The driver is gone: whatever storage does now, this process must not stay.
        time.sleep(_GRACE_SECONDS)
        os._exit(0)


if __name__ == "__main__":
    main()
