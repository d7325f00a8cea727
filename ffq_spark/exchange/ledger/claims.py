"""The claims of a committed query: what can still refuse its step after the outcome.

A first write claims the exchange's record, a stream's batch claims its number. Both records are
create-once, so a claim that is repeated, by whomever, gets the same answer.
"""

from __future__ import annotations

from enum import Enum

from ffq_spark.errors import CorruptRecord, DuplicateBatch, ExchangeMismatch
from ffq_spark.exchange.ledger import stream_records
from ffq_spark.exchange.ledger.compatibility import agree
from ffq_spark.format import paths
from ffq_spark.format.records import ExchangeRecord, OutcomeRecord
from ffq_spark.store import Store


class Claim(Enum):
    """Where a committed query's claims stand."""

    OPEN = "open"
    WON = "won"
    LOST = "lost"


def make(store: Store, outcome: OutcomeRecord) -> None:
    """Make all claims of a committed query, or raise the error of the first that is lost.

    >>> from ffq_spark.format.records import Outcome
    >>> make(Store("memory://doc-claims"), OutcomeRecord(7, Outcome.COMMITTED, 0, "nonce"))
    """
    _claim_exchange(store, outcome)
    _claim_batch(store, outcome)


def _claim_exchange(store: Store, outcome: OutcomeRecord) -> None:
    """Create the exchange's record if this query is its first; refuse a query that disagrees."""
    if outcome.exchange is None or store.create_once(paths.EXCHANGE, outcome.exchange.encode()):
        return
    found = _exchange(store)
    if found is None:
        path = store.url(paths.EXCHANGE)
        raise CorruptRecord("the record exists and cannot be read", path=path)
    agree(found, outcome.exchange, store.url())


def _claim_batch(store: Store, outcome: OutcomeRecord) -> None:
    """Make this query its stream's batch; refuse it if another run of the batch came first."""
    batch = outcome.step.stream if outcome.step else None
    if batch is not None and not stream_records.claim(store, outcome.query, batch):
        raise DuplicateBatch(f"another run of batch {batch.batch} came first")


def standing(store: Store, outcome: OutcomeRecord) -> Claim:
    """Tell whether a committed query's claims are open, won or lost, without making them.

    >>> from ffq_spark.format.records import Outcome
    >>> standing(Store("memory://doc-claims"), OutcomeRecord(7, Outcome.COMMITTED, 0, "nonce"))
    <Claim.WON: 'won'>
    """
    if outcome.exchange is not None:
        found = _exchange(store)
        if found is None:
            return Claim.OPEN
        try:
            agree(found, outcome.exchange, store.url())
        except ExchangeMismatch:
            return Claim.LOST
    batch = outcome.step.stream if outcome.step else None
    if batch is None:
        return Claim.WON
    winner = stream_records.read(store, batch.stream, batch.epoch, batch.batch)
    if winner is None:
        return Claim.OPEN
    return Claim.WON if winner.query == outcome.query else Claim.LOST


def _exchange(store: Store) -> ExchangeRecord | None:
    data = store.read_optional(paths.EXCHANGE)
    return None if data is None else ExchangeRecord.decode(data, store.url(paths.EXCHANGE))
