"""The write rule of streams: each batch becomes a step once, however often it is run.

The next batch is appended. A batch that its owner has in the log is a re-run: it is discarded after
its rows were compared with the rows of the first run; different rows are an error unless the option
`onMismatch` allows them. Every other batch is refused, because discarding it would lose its rows: a
batch of another owner, one that leaves a gap, and one before the owner's first.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from ffq_spark.errors import (
    AlreadyCommitted,
    DuplicateBatch,
    FfqError,
    ReplayMismatch,
    StepGap,
)
from ffq_spark.exchange.ledger import stream_records
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.format import paths
from ffq_spark.format.digest import Digest
from ffq_spark.format.ids import now_ms
from ffq_spark.format.records import BatchRecord, Outcome, OwnerRecord, StreamBatch
from ffq_spark.store import Store

BATCH_WRITES = "batch writes"
"""The owner of all batch writes that neither name a `streamRun` nor run in a streaming query."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Delivery:
    """One run of a stream's batch: its owner, its number, and what to do if a re-run differs."""

    stream: str
    owner: str
    batch: int
    takeover: bool = False
    on_mismatch: str = "fail"

    def __str__(self) -> str:
        return f"batch {self.batch} of stream {self.stream}"


@dataclass(frozen=True)
class Admission:
    """What a commit claims: a batch, and the epoch that begins with it. Both are None elsewhere."""

    batch: StreamBatch | None = None
    owner: OwnerRecord | None = None


def admit(store: Store, query: int, delivery: Delivery, digest: Digest) -> Admission | None:
    """Return what a query may claim for its batch, or None for a re-run, which is discarded.

    A query whose batch is discarded ends here as aborted. Nothing is claimed before the outcome:
    a write that is never committed does not own a stream.
    """
    ledger = Ledger(store)
    # An earlier batch that was committed and not published comes before this one.
    ledger.publish_pending()
    epochs = stream_records.owners(store, delivery.stream)
    records = list(stream_records.records_of(store, epochs, delivery.owner, delivery.batch))
    first = next((record for _, record in records if not record.is_seal), None)
    if first is not None and first.query == query:
        raise AlreadyCommitted(f"another commit of query {query} came first")
    if first is not None:
        code = DuplicateBatch.code if _digest(first) == digest else ReplayMismatch.code
        ledger.end(query, Outcome.ABORTED, _explanation(delivery, digest, first), code=code)
        _compare(delivery, digest, first)
        return None
    sealed = {epoch for epoch, record in records if record.is_seal}
    present = _present_epoch(store, epochs, delivery, sealed)
    _refuse_gap(store, epochs, delivery)
    number = len(epochs) + 1
    epoch = present or OwnerRecord(
        delivery.stream, number, delivery.owner, delivery.batch, now_ms()
    )
    batch = StreamBatch(
        delivery.stream,
        epoch.epoch,
        delivery.batch,
        digest.rows,
        digest.hash_sum,
        digest.hash_xor,
    )
    return Admission(batch, None if present else epoch)


def _present_epoch(
    store: Store, epochs: Sequence[OwnerRecord], delivery: Delivery, sealed: set[int]
) -> OwnerRecord | None:
    """Return the present epoch if the owner can go on with it, or None if a new one begins."""
    present = epochs[-1] if epochs else None
    if present is None or (present.owner == delivery.owner and present.epoch in sealed):
        return None
    if present.owner != delivery.owner and not delivery.takeover:
        raise stream_records.owned(store, present, delivery.owner)
    return present if present.owner == delivery.owner else None


def _refuse_gap(store: Store, epochs: Sequence[OwnerRecord], delivery: Delivery) -> None:
    """Raise StepGap unless the batch is the owner's first, or the one before it is in the log."""
    own = [epoch for epoch in epochs if epoch.owner == delivery.owner]
    if not own:
        return
    path = store.url(paths.stream_owner(delivery.stream, own[0].epoch))
    if delivery.batch < own[0].first:
        message = f"{delivery} is older than its first, {own[0].first}, and not in the log"
        raise StepGap(message, path=path)
    before = delivery.batch - 1
    has_before = stream_records.find(store, epochs, delivery.owner, before) is not None
    if before >= own[0].first and not has_before:
        raise StepGap(f"{delivery} came without batch {before}", path=path)


def discard_beaten(store: Store, delivery: Delivery, batch: StreamBatch, refusal: FfqError) -> None:
    """Discard a committed batch that another run of its owner claimed first.

    Raises ReplayMismatch if the rows of the two runs differ and `delivery` does not allow it, and
    `refusal` if the owner has no such batch, because another one took the stream over.
    """
    epochs = stream_records.owners(store, delivery.stream)
    winner = stream_records.find(store, epochs, delivery.owner, delivery.batch)
    if winner is None:
        raise refusal
    _compare(delivery, _digest(batch), winner)


def _compare(delivery: Delivery, digest: Digest, first: BatchRecord) -> None:
    message = _explanation(delivery, digest, first)
    if _digest(first) == digest:
        logger.info(message)
    elif delivery.on_mismatch == "fail":
        raise ReplayMismatch(message, option="onMismatch")
    elif delivery.on_mismatch == "warn":
        logger.warning("[%s] %s", ReplayMismatch.code, message)


def _explanation(delivery: Delivery, digest: Digest, first: BatchRecord) -> str:
    start = f"{delivery} is in the log already, by query {first.query}; discarded"
    if _digest(first) == digest:
        return f"{start}, its rows are the same ({digest})"
    return f"{start}, though its rows differ: first {_digest(first)}; now {digest}"


def _digest(record: BatchRecord | StreamBatch) -> Digest:
    return Digest(record.rows, record.hash_sum, record.hash_xor)
