"""The process beside the driver: attempt log, leases, cancel requests, ends of writes, cleanup.

The plugin starts it with the first write and talks to it in lines of JSON on standard input; orders
to the driver go to standard output. It ends when its input does, however the driver ended. Leases
are renewed only while the driver says that it lives: one that hangs or is stopped loses them.

The thread that reads the input renews the leases and answers beats; it never waits for storage.
The main thread does everything else.

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
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Any

from ffq_spark.errors import FfqError
from ffq_spark.exchange.attempts.task_log import Event, write_events
from ffq_spark.exchange.ledger.abandon import end_abandoned
from ffq_spark.exchange.ledger.cancel import read_cancel
from ffq_spark.exchange.maintenance.gc import collect_garbage
from ffq_spark.shared_names import StewardEvent, StewardOrder
from ffq_spark.spark.lease_keeper import LeaseKeeper
from ffq_spark.store import Store

logger = logging.getLogger("ffq_spark.steward")

_POLL_SECONDS = 1.0
_FLUSH_EVENTS = 500
_GRACE_SECONDS = 8.0
# The losing tasks of a query end after it, and a killed task may even open one that was given up.
_LATE_BEATS = 6
# However many queries are under way, one look asks storage about so many of them.
_QUERIES_PER_LOOK = 50
# Pieces of a log that an earlier steward of this driver wrote are not written over.
_PIECES_PER_RUN = 100_000


@dataclass
class Query:
    """A query that this application has under way, or had until a moment ago."""

    number: int
    root: str
    pieces: int
    pending: list[Event] = field(default_factory=list)
    flush_due: bool = False
    canceled: bool = False
    given_up_ms: int | None = None
    is_searched: bool = False
    is_settled: bool = False
    beats_left: int = _LATE_BEATS
    last_look: int = 0

    @property
    def wants_look(self) -> bool:
        """Whether storage has to be asked about it."""
        if self.flush_due:
            return True
        if self.given_up_ms is None:
            return not self.canceled
        return not self.is_settled and (not self.is_searched or self.beats_left <= 0)


class Steward:
    """Takes events one by one, and looks around between them."""

    def __init__(self, keeper: LeaseKeeper, order: Callable[[Event], None]) -> None:
        self._keeper = keeper
        self._order = order
        self._initiator = ""
        self._first_piece = 0
        self._cleanup: dict[str, Any] = {}
        self._next_cleanup = 0.0
        self._cleaner: threading.Thread | None = None
        self._queries: dict[int, Query] = {}
        self._looks = 0

    def take(self, event: Event) -> None:
        """Handle one event of the driver's."""
        kind = event[StewardEvent.KIND]
        if kind == StewardEvent.HELLO:
            self._hello(event)
        elif kind == StewardEvent.OPEN:
            self._open(event)
        elif kind == StewardEvent.ENDED:
            self._ended(event)
        elif kind == StewardEvent.BEAT:
            self._beat()
        elif kind == StewardEvent.BYE:
            self.look()
            self.flush()
            self._keeper.release()
        elif kind != StewardEvent.ROOT:
            self._record(event)

    def _hello(self, event: Event) -> None:
        self._initiator = event[StewardEvent.INITIATOR]
        self._first_piece = event.get(StewardEvent.RUN, 0) * _PIECES_PER_RUN
        if event.get(StewardEvent.CLEANUP):
            self._cleanup = {
                "interval": event[StewardEvent.CLEANUP_INTERVAL_SECONDS],
                "ttl_ms": event[StewardEvent.CLEANUP_TTL_SECONDS] * 1000,
            }

    def _open(self, event: Event) -> None:
        known = self._queries.get(event[StewardEvent.QUERY])
        if known is None:
            query = Query(event[StewardEvent.QUERY], event[StewardEvent.ROOT], self._first_piece)
            self._queries[query.number] = query
        else:
            # A write that failed before its query began may be made again with the same number.
            known.given_up_ms, known.is_searched, known.is_settled = None, False, False
            known.beats_left = _LATE_BEATS
            self._keeper.opened(known.root, known.number)

    def _ended(self, event: Event) -> None:
        query = self._queries.get(event[StewardEvent.QUERY])
        if query is None:
            # A write without a job, or one that ended while no steward ran.
            query = Query(event[StewardEvent.QUERY], event[StewardEvent.ROOT], self._first_piece)
            self._queries[query.number] = query
        if query.given_up_ms is None:
            query.given_up_ms = event[StewardEvent.TIME]

    def _record(self, event: Event) -> None:
        query = self._queries.get(event[StewardEvent.QUERY])
        if query is None:
            return
        query.pending.append(
            {k: v for k, v in event.items() if k not in (StewardEvent.ROOT, StewardEvent.QUERY)}
        )
        # Not at every event beyond the limit: storage that fails would hold up everything else.
        if (
            event[StewardEvent.KIND] == StewardEvent.JOB_END
            or len(query.pending) % _FLUSH_EVENTS == 0
        ):
            query.flush_due = True
            self._try(self._flush, query)

    def _beat(self) -> None:
        for query in list(self._queries.values()):
            query.flush_due = bool(query.pending)
            if query.given_up_ms is not None:
                query.beats_left -= 1
                if query.is_settled and query.beats_left <= 0 and not query.pending:
                    del self._queries[query.number]
        self._clean()

    def look(self) -> None:
        """Attend to the queries that waited longest: at most `_QUERIES_PER_LOOK` of them."""
        self._looks += 1
        due = sorted(
            (query for query in self._queries.values() if query.wants_look),
            key=lambda query: query.last_look,
        )
        failed: set[str] = set()
        for query in due[:_QUERIES_PER_LOOK]:
            query.last_look = self._looks
            if query.root not in failed and not self._try(self._attend, query):
                failed.add(query.root)

    def _attend(self, query: Query) -> None:
        self._flush(query)
        if query.given_up_ms is None:
            self._look_for_cancel(query)
        elif not query.is_settled:
            self._settle(query, query.given_up_ms)

    def _look_for_cancel(self, query: Query) -> None:
        request = read_cancel(self._keeper.store(query.root), query.number)
        if request is not None and not query.canceled:
            message = f"[FFQ_CANCELED] canceled by {request.who}: {request.message}"
            self._order(
                {
                    StewardOrder.KIND: StewardOrder.CANCEL,
                    StewardOrder.QUERY: query.number,
                    StewardOrder.MESSAGE: message,
                }
            )
            query.canceled = True

    def _settle(self, query: Query, given_up_ms: int) -> None:
        """Make sure that a query has an outcome which its driver does no more work for."""
        outcome = end_abandoned(self._keeper.store(query.root), query.number, given_up_ms)
        query.is_searched = True
        if outcome is not None or query.beats_left <= 0:
            query.is_settled = True
            self._keeper.settled(query.root, query.number)
            self._order({StewardOrder.KIND: StewardOrder.SETTLED, StewardOrder.QUERY: query.number})

    def flush(self) -> None:
        """Store all recorded events."""
        for query in self._queries.values():
            query.flush_due = True
            self._try(self._flush, query)

    def _flush(self, query: Query) -> None:
        if query.pending and query.flush_due:
            place = (self._keeper.store(query.root), self._initiator, query.number)
            write_events(*place, query.pieces + 1, query.pending)
            query.pieces += 1
            query.pending = []
        query.flush_due = False

    def _clean(self) -> None:
        busy = self._cleaner is not None and self._cleaner.is_alive()
        stores = self._keeper.stores()
        if not self._cleanup or busy or not stores or time.monotonic() < self._next_cleanup:
            return
        self._next_cleanup = time.monotonic() + self._cleanup["interval"]
        self._cleaner = threading.Thread(target=self._sweep, args=[stores], daemon=True)
        self._cleaner.start()

    def _sweep(self, stores: list[Store]) -> None:
        for store in stores:
            self._try(self._collect, store)

    def _collect(self, store: Store) -> None:
        for problem in collect_garbage(store, ttl_ms=self._cleanup["ttl_ms"]).problems:
            logger.warning("cleanup of %s: %s", store.root, problem)

    def _try(self, work: Callable[[Any], None], subject: Any) -> bool:
        """Do storage work, and whether it succeeded; what failed is tried again later."""
        try:
            work(subject)
            return True
        except (FfqError, OSError) as error:
            logger.warning("%s", error)
            return False


class Orders:
    """Writes orders to the driver, one line each, from any thread."""

    def __init__(self, sink: IO[str]) -> None:
        self._sink = sink
        self._lock = threading.Lock()

    def give(self, order: Event) -> None:
        """Write one order."""
        with self._lock:
            print(json.dumps(order), file=self._sink, flush=True)


def main() -> None:
    """Serve until the input ends."""
    logging.basicConfig(level=logging.WARNING, format="ffq_spark steward: %(message)s")
    # Ctrl-C reaches the whole group; the driver decides when this ends, by closing the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    events: queue.Queue[Event | None] = queue.Queue()
    keeper, orders = LeaseKeeper(), Orders(sys.stdout)
    listening = (sys.stdin.buffer, keeper, orders, events)
    threading.Thread(target=_listen, args=listening, daemon=True).start()
    steward = Steward(keeper, orders.give)
    next_look = 0.0
    while True:
        try:
            event = events.get(timeout=_POLL_SECONDS)
            if event is None:
                break
            steward.take(event)
        except queue.Empty:
            pass
        except Exception as error:
            # All queries depend on this process, so no event may end it.
            logger.warning("an event is left out: %r", error)
        if time.monotonic() >= next_look:
            steward.look()
            next_look = time.monotonic() + _POLL_SECONDS
    steward.flush()


def _listen(
    source: IO[bytes], keeper: LeaseKeeper, orders: Orders, events: queue.Queue[Event | None]
) -> None:
    """Read the driver's lines, keep the leases, and pass the events on."""
    try:
        for line in source:
            try:
                event = json.loads(line)
                _keep_leases(keeper, orders, event)
                events.put(event)
            except Exception as error:
                logger.warning("an event is left out: %r", error)
    finally:
        events.put(None)
        # The driver is gone: whatever storage does now, this process must not stay.
        time.sleep(_GRACE_SECONDS)
        os._exit(0)


def _keep_leases(keeper: LeaseKeeper, orders: Orders, event: Event) -> None:
    kind = event[StewardEvent.KIND]
    if kind == StewardEvent.HELLO:
        keeper.start(event[StewardEvent.INITIATOR], event[StewardEvent.LEASE_SECONDS])
    elif kind in (StewardEvent.OPEN, StewardEvent.ROOT):
        keeper.add(event[StewardEvent.ROOT], event[StewardEvent.STORAGE])
        if kind == StewardEvent.OPEN:
            keeper.opened(event[StewardEvent.ROOT], event[StewardEvent.QUERY])
    elif kind == StewardEvent.BEAT:
        keeper.beat()
        orders.give({StewardOrder.KIND: StewardOrder.ANSWER})


if __name__ == "__main__":
    main()
