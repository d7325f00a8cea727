"""The claims of a committed query, which can still refuse its step after the outcome.

A first write claims the exchange's record; a stream's batch claims its number. Both records are
created once, so every process that repeats a claim gets the same answer.
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
    """State of a committed query's claims."""

    OPEN = "open"
    WON = "won"
    LOST = "lost"


def create_claims(store: Store, outcome: OutcomeRecord) -> None:
    """Create all claims of a committed query.

    Raises ExchangeMismatch if another first write created a different exchange, DuplicateBatch if
    another run of the same batch came first.

    >>> from ffq_spark.format.records import Outcome
    >>> create_claims(Store("memory://doc-claims"), OutcomeRecord(7, Outcome.COMMITTED, 0, "nonce"))
    """
    proposal = outcome.exchange
    if proposal is not None and not store.create_once(paths.EXCHANGE, proposal.encode()):
        exchange = _read_exchange(store)
        if exchange is None:
            path = store.url(paths.EXCHANGE)
            raise CorruptRecord("the record exists but cannot be read", path=path)
        agree(exchange, proposal, store.url())
    batch = outcome.step.stream if outcome.step else None
    if batch is not None and not stream_records.claim(store, outcome.query, batch):
        raise DuplicateBatch(f"another run of batch {batch.batch} came first")


def claim_state(store: Store, outcome: OutcomeRecord) -> Claim:
    """Return whether a committed query's claims are open, won or lost, without creating them.

    >>> from ffq_spark.format.records import Outcome
    >>> claim_state(Store("memory://doc-claims"), OutcomeRecord(7, Outcome.COMMITTED, 0, "nonce"))
    <Claim.WON: 'won'>
    """
    if outcome.exchange is not None:
        exchange = _read_exchange(store)
        if exchange is None:
            return Claim.OPEN
        try:
            agree(exchange, outcome.exchange, store.url())
        except ExchangeMismatch:
            return Claim.LOST
    batch = outcome.step.stream if outcome.step else None
    if batch is None:
        return Claim.WON
    winner = stream_records.read(store, batch.stream, batch.epoch, batch.batch)
    if winner is None:
        return Claim.OPEN
    return Claim.WON if winner.query == outcome.query else Claim.LOST


def _read_exchange(store: Store) -> ExchangeRecord | None:
    data = store.read_optional(paths.EXCHANGE)
    return None if data is None else ExchangeRecord.decode(data, store.url(paths.EXCHANGE))
