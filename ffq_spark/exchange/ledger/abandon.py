"""End a query that its driver has given up without recording an outcome."""

from __future__ import annotations

from ffq_spark.exchange.ledger.cancel import end_unfinished
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.format import paths
from ffq_spark.format.records import OutcomeRecord, QueryRecord
from ffq_spark.store import Store


def end_abandoned(store: Store, query: int, given_up_ms: int) -> OutcomeRecord | None:
    """End a query that its driver gave up at a time, and return its outcome.

    The outcome is created once, so a commit that came first stays. Returns None without a query
    record, and for a record younger than `given_up_ms`: it belongs to a later write with the same
    number, which may still commit.

    >>> from ffq_spark.format.ids import now_ms
    >>> store = Store("memory://doc-abandon")
    >>> query = Ledger(store).begin("append", "app-1").query
    >>> end_abandoned(store, query, now_ms()).outcome.value
    'ABORTED'
    >>> end_abandoned(store, query + 1, now_ms()) is None
    True
    """
    ended = Ledger(store).outcome(query)
    if ended is not None:
        return ended
    path = paths.query(query)
    data = store.read_optional(path)
    if data is None or QueryRecord.decode(data, store.url(path)).created_at_ms > given_up_ms:
        return None
    return end_unfinished(store, query, "the driver gave the write up before its commit")
