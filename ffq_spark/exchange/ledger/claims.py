"""The claims of a committed query, which can still refuse its step after the outcome.

A first write claims the exchange's record. The first batch of an owner claims an epoch of its
stream, and every batch of a stream claims its number. The records are created once, so every
process that repeats a claim gets the same answer.
"""

from __future__ import annotations

from enum import Enum

from ffq_spark.errors import (
    CorruptRecord,
    DuplicateBatch,
    ExchangeMismatch,
    FfqError,
    StepGap,
    StreamOwned,
)
from ffq_spark.exchange.ledger import stream_records
from ffq_spark.exchange.ledger.compatibility import agree_in_order
from ffq_spark.format import paths
from ffq_spark.format.records import ExchangeRecord, OutcomeRecord, StepBody
from ffq_spark.store import Store

REFUSALS: tuple[type[FfqError], ...] = (ExchangeMismatch, DuplicateBatch, StreamOwned, StepGap)
"""What `make` raises if a claim is lost: the query never gets a step."""


class Claim(Enum):
    """State of a committed query's claims."""

    OPEN = "open"
    WON = "won"
    LOST = "lost"


def create_claims(store: Store, outcome: OutcomeRecord) -> None:
    """Create all claims of a committed query.

    Raises ExchangeMismatch if another first write created a different exchange, StreamOwned or
    StepGap if another write began the stream's epoch or took the stream over, and DuplicateBatch
    if another run of the same batch came first.

    >>> from ffq_spark.format.records import Outcome
    >>> create_claims(Store("memory://doc-claims"), OutcomeRecord(7, Outcome.COMMITTED, 0, "nonce"))
    """
    proposal = outcome.exchange
    if proposal is not None and not store.create_once(paths.EXCHANGE, proposal.encode()):
        exchange = _read_exchange(store)
        if exchange is None:
            path = store.url(paths.EXCHANGE)
            raise CorruptRecord("the record exists but cannot be read", path=path)
        agree_in_order(exchange, proposal, store.url())
    if outcome.owner is not None:
        stream_records.begin_epoch(store, outcome.owner)
    batch = outcome.step.stream if outcome.step else None
    if batch is None:
        return
    winner = stream_records.claim(store, outcome.query, batch)
    if winner.is_seal:
        message = f"stream {batch.stream} was taken over before batch {batch.batch} was committed"
        path = store.url(paths.stream_batch(batch.stream, batch.epoch, batch.batch))
        raise StreamOwned(message, path=path, option="streamId")
    if winner.query != outcome.query:
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
            agree_in_order(exchange, outcome.exchange, store.url())
        except ExchangeMismatch:
            return Claim.LOST
    if outcome.owner is not None:
        owner = stream_records.owner(store, outcome.owner.stream, outcome.owner.epoch)
        if owner is None:
            return Claim.OPEN
        if not stream_records.begins(owner, outcome.owner):
            return Claim.LOST
    batch = outcome.step.stream if outcome.step else None
    if batch is None:
        return Claim.WON
    winner = stream_records.read(store, batch.stream, batch.epoch, batch.batch)
    if winner is None:
        return Claim.OPEN
    return Claim.WON if winner.query == outcome.query else Claim.LOST


def claimed_step(store: Store, outcome: OutcomeRecord | None) -> StepBody | None:
    """Return the step of a query; None if it has not committed, or has lost its claims."""
    step = outcome.step if outcome else None
    if outcome is None or step is None or claim_state(store, outcome) is Claim.LOST:
        return None
    return step


def _read_exchange(store: Store) -> ExchangeRecord | None:
    data = store.read_optional(paths.EXCHANGE)
    return None if data is None else ExchangeRecord.decode(data, store.url(paths.EXCHANGE))
