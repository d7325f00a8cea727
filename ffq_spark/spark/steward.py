"""The steward: the process beside the driver that does the plugin's storage work.

It writes the task log, renews leases, reads cancel requests, creates the outcomes of ended
writes, and runs gc. The plugin starts it with the first write and sends events as lines of JSON to
its standard input; it writes orders for the driver to standard output. It exits when its input
ends. Leases are renewed only on the driver's beats, so a driver that hangs or is stopped loses
them.

The thread that reads the input renews the leases and answers beats, and never waits for storage.
The main thread does everything else.

This module does not import pyspark, because it also runs beside Scala and SQL applications.
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
from typing import IO

from ffq_spark.exchange.attempts.task_log import Event, write_events
from ffq_spark.exchange.ledger.abandon import end_abandoned
from ffq_spark.exchange.ledger.cancel import read_cancel
from ffq_spark.shared_names import StewardEvent, StewardOrder
from ffq_spark.spark.lease_keeper import LeaseKeeper
from ffq_spark.spark.periodic_gc import PeriodicGc
from ffq_spark.spark.tracked_query import TrackedQuery

logger = logging.getLogger("ffq_spark.steward")

_POLL_SECONDS = 1.0
_FLUSH_EVENTS = 500
_GRACE_SECONDS = 8.0
# One look asks storage about at most this many queries, so that it stays short.
_QUERIES_PER_LOOK = 50
# Each steward of a driver has its own range of piece numbers and overwrites no piece of another's.
_PIECES_PER_RUN = 100_000


class Steward:
    """Handles the driver's events one by one, and looks after open queries between them."""

    def __init__(self, keeper: LeaseKeeper, order: Callable[[Event], None]) -> None:
        self._keeper = keeper
        self._order = order
        self._initiator = ""
        self._first_piece = 0
        self._gc: PeriodicGc | None = None
        self._queries: dict[int, TrackedQuery] = {}
        self._looks = 0

    def handle(self, event: Event) -> None:
        """Handle one event of the driver."""
        name = event[StewardEvent.KIND]
        if name == StewardEvent.HELLO:
            self._start(event)
        elif name == StewardEvent.OPEN:
            self._open(event)
        elif name == StewardEvent.ENDED:
            self._end(event)
        elif name == StewardEvent.BEAT:
            self._beat()
        elif name == StewardEvent.BYE:
            self.look()
            self.flush()
            self._keeper.release()
        elif name != StewardEvent.ROOT:
            self._record(event)

    def _start(self, event: Event) -> None:
        self._initiator = event[StewardEvent.INITIATOR]
        self._first_piece = event.get(StewardEvent.RUN, 0) * _PIECES_PER_RUN
        if event.get(StewardEvent.CLEANUP):
            ttl_ms = event[StewardEvent.CLEANUP_TTL_SECONDS] * 1000
            self._gc = PeriodicGc(event[StewardEvent.CLEANUP_INTERVAL_SECONDS], ttl_ms)

    def _open(self, event: Event) -> None:
        query = self._queries.get(event[StewardEvent.QUERY])
        if query is not None:
            query.reopen()
        elif self._keeper.has_store(event[StewardEvent.ROOT]):
            query = self._track(event)
        else:
            return
        # An earlier write with this number may have ended since the event came.
        self._keeper.start_renewing(query.root, query.number)

    def _track(self, event: Event) -> TrackedQuery:
        query = TrackedQuery(event[StewardEvent.QUERY], event[StewardEvent.ROOT], self._first_piece)
        self._queries[query.number] = query
        return query

    def _end(self, event: Event) -> None:
        query = self._queries.get(event[StewardEvent.QUERY])
        if query is None:
            if not self._keeper.has_store(event[StewardEvent.ROOT]):
                # No steward can open this root, so the driver must not pass the query on.
                self._order_settled(event[StewardEvent.QUERY])
                return
            # The query had no job, or it ended while no steward was running.
            query = self._track(event)
        if query.ended_ms is None:
            query.ended_ms = event[StewardEvent.TIME]

    def _record(self, event: Event) -> None:
        query = self._queries.get(event[StewardEvent.QUERY])
        if query is None:
            return
        query.pending.append(
            {k: v for k, v in event.items() if k not in (StewardEvent.ROOT, StewardEvent.QUERY)}
        )
        # Retry a failed flush only after the next _FLUSH_EVENTS events, so that failing storage
        # does not delay everything else.
        if (
            event[StewardEvent.KIND] == StewardEvent.JOB_END
            or len(query.pending) % _FLUSH_EVENTS == 0
        ):
            query.flush_due = True
            self._try(self._flush, query)

    def _beat(self) -> None:
        for query in list(self._queries.values()):
            query.flush_due = bool(query.pending)
            if query.ended_ms is not None:
                query.beats_left -= 1
                if query.is_done:
                    del self._queries[query.number]
        if self._gc is not None:
            self._gc.run_if_due(self._keeper.stores())

    def look(self) -> None:
        """Check the queries that waited longest, at most `_QUERIES_PER_LOOK` of them."""
        self._looks += 1
        due = sorted(
            (query for query in self._queries.values() if query.needs_storage),
            key=lambda query: query.last_look,
        )
        failed_roots: set[str] = set()
        for query in due[:_QUERIES_PER_LOOK]:
            query.last_look = self._looks
            if query.root not in failed_roots and not self._try(self._check, query):
                failed_roots.add(query.root)

    def _check(self, query: TrackedQuery) -> None:
        self._flush(query)
        if query.ended_ms is None:
            self._pass_cancel_on(query)
        elif not query.is_closed:
            self._record_end(query, query.ended_ms)

    def _pass_cancel_on(self, query: TrackedQuery) -> None:
        request = read_cancel(self._keeper.store(query.root), query.number)
        if request is not None and not query.is_canceled:
            message = f"[FFQ_CANCELED] canceled by {request.who}: {request.message}"
            self._order(
                {
                    StewardOrder.KIND: StewardOrder.CANCEL,
                    StewardOrder.QUERY: query.number,
                    StewardOrder.MESSAGE: message,
                }
            )
            query.is_canceled = True

    def _record_end(self, query: TrackedQuery, ended_ms: int) -> None:
        """Give an outcome to a query that its driver has stopped working on."""
        outcome = end_abandoned(self._keeper.store(query.root), query.number, ended_ms)
        query.was_searched = True
        if outcome is not None or query.beats_left <= 0:
            query.is_closed = True
            self._keeper.stop_renewing(query.root, query.number)
            self._order_settled(query.number)

    def _order_settled(self, query: int) -> None:
        self._order({StewardOrder.KIND: StewardOrder.SETTLED, StewardOrder.QUERY: query})

    def flush(self) -> None:
        """Write the recorded events of all queries."""
        for query in self._queries.values():
            query.flush_due = True
            self._try(self._flush, query)

    def _flush(self, query: TrackedQuery) -> None:
        if query.pending and query.flush_due:
            store = self._keeper.store(query.root)
            write_events(store, self._initiator, query.number, query.pieces + 1, query.pending)
            query.pieces += 1
            query.pending = []
        query.flush_due = False

    def _try(self, work: Callable[[TrackedQuery], None], query: TrackedQuery) -> bool:
        """Do storage work for a query and return whether it succeeded. Failed work is retried."""
        try:
            work(query)
            return True
        except Exception as error:
            # All queries depend on this process, so no query may end it.
            logger.warning("query %d: %s: %s", query.number, type(error).__name__, error)
            return False


class Orders:
    """Writes orders for the driver, one line of JSON each, from any thread."""

    def __init__(self, sink: IO[str]) -> None:
        self._sink = sink
        self._lock = threading.Lock()

    def send(self, order: Event) -> None:
        """Write one order."""
        with self._lock:
            print(json.dumps(order), file=self._sink, flush=True)


def main() -> None:
    """Handle events until the input ends."""
    logging.basicConfig(level=logging.WARNING, format="ffq_spark steward: %(message)s")
    # Ctrl-C reaches the whole process group. The driver ends this process by closing the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    events: queue.Queue[Event | None] = queue.Queue()
    keeper, orders = LeaseKeeper(), Orders(sys.stdout)
    listening = (sys.stdin.buffer, keeper, orders, events)
    threading.Thread(target=_listen, args=listening, daemon=True).start()
    steward = Steward(keeper, orders.send)
    next_look = 0.0
    while True:
        try:
            event = events.get(timeout=_POLL_SECONDS)
            if event is None:
                break
            steward.handle(event)
        except queue.Empty:
            pass
        except Exception as error:
            # All queries depend on this process, so no event may end it.
            logger.warning("an event was skipped: %r", error)
        if time.monotonic() >= next_look:
            try:
                steward.look()
            except Exception as error:
                logger.warning("the open queries were not checked: %r", error)
            next_look = time.monotonic() + _POLL_SECONDS
    steward.flush()


def _listen(
    source: IO[bytes], keeper: LeaseKeeper, orders: Orders, events: queue.Queue[Event | None]
) -> None:
    """Read events from the driver, renew leases, and queue the events for the main thread."""
    try:
        for line in source:
            try:
                event = json.loads(line)
                try:
                    _keep_leases(keeper, orders, event)
                finally:
                    # The main thread settles the queries of a root that cannot be opened.
                    events.put(event)
            except Exception as error:
                logger.warning("an event was skipped: %r", error)
    finally:
        events.put(None)
        # The driver has ended, so this process exits even if storage hangs.
        time.sleep(_GRACE_SECONDS)
        os._exit(0)


def _keep_leases(keeper: LeaseKeeper, orders: Orders, event: Event) -> None:
    name = event[StewardEvent.KIND]
    if name == StewardEvent.HELLO:
        keeper.start(event[StewardEvent.INITIATOR], event[StewardEvent.LEASE_SECONDS])
    elif name in (StewardEvent.OPEN, StewardEvent.ROOT):
        keeper.add(event[StewardEvent.ROOT], event[StewardEvent.STORAGE])
        if name == StewardEvent.OPEN:
            keeper.start_renewing(event[StewardEvent.ROOT], event[StewardEvent.QUERY])
    elif name == StewardEvent.BEAT:
        keeper.beat()
        orders.send({StewardOrder.KIND: StewardOrder.ANSWER})


if __name__ == "__main__":
    main()
