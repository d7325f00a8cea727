"""The write rule of streams: each batch becomes a step once, however often it is run.

The next batch is appended. A batch that its owner has in the log is a re-run: it is discarded after
its rows were compared with the rows of the first run; different rows are an error unless the option
`onMismatch` allows them. Every other batch is refused, because discarding it would lose its rows: a
batch of another owner, one that leaves a gap, and one before the owner's first.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from ffq_spark.errors import AlreadyCommitted, DuplicateBatch, ReplayMismatch, StepGap
from ffq_spark.exchange.ledger import stream_records
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.format import paths
from ffq_spark.format.digest import Digest
from ffq_spark.format.records import BatchRecord, Outcome, StreamBatch
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


def admit(store: Store, query: int, delivery: Delivery, digest: Digest) -> StreamBatch | None:
    """Return the batch that a query may commit next, or None for a re-run, which is discarded.

    A query whose batch is discarded ends here as aborted.
    """
    ledger = Ledger(store)
    # An earlier batch that was committed and not published comes before this one.
    ledger.roll_forward()
    first = stream_records.find(store, delivery.stream, delivery.owner, delivery.batch)
    if first is not None and first.query == query:
        raise AlreadyCommitted(f"another commit of query {query} came first")
    if first is not None:
        code = DuplicateBatch.code if _digest(first) == digest else ReplayMismatch.code
        ledger.end(query, Outcome.ABORTED, _explanation(delivery, digest, first), code=code)
        _compare(delivery, digest, first)
        return None
    owner = stream_records.ensure_owner(
        store, delivery.stream, delivery.owner, delivery.batch, takeover=delivery.takeover
    )
    if delivery.batch < owner.first:
        path = store.url(paths.stream_owner(delivery.stream, owner.epoch))
        message = f"{delivery} is older than its first, {owner.first}, and not in the log"
        raise StepGap(message, path=path)
    before = delivery.batch - 1
    if before >= owner.first and not stream_records.read(
        store, delivery.stream, owner.epoch, before
    ):
        path = store.url(paths.stream_batch(delivery.stream, owner.epoch, before))
        raise StepGap(f"{delivery} came without batch {before}", path=path)
    return StreamBatch(
        delivery.stream,
        owner.epoch,
        delivery.batch,
        digest.rows,
        digest.hash_sum,
        digest.hash_xor,
    )


def discard_beaten(store: Store, delivery: Delivery, batch: StreamBatch) -> None:
    """Discard a committed batch whose number another run of the batch claimed first.

    Raises ReplayMismatch if the rows of the two runs differ and `delivery` does not allow it.
    """
    winner = stream_records.read(store, batch.stream, batch.epoch, batch.batch)
    if winner is not None:
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
