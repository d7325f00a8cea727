"""The write rule of streams: each batch becomes a step once, however often it is run.

The next batch is appended. One that its owner has in the log is a re-run: it is discarded after
its rows were compared with the first run's; other rows are an error unless `on_mismatch` allows
them. All others are refused, because to discard them would be to lose their rows: batches of
another owner, beyond the next, and before the first.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from ffq_spark.errors import AlreadyCommitted, DuplicateBatch, ReplayMismatch, StepGap
from ffq_spark.exchange.ledger import stream_records
from ffq_spark.exchange.ledger.ledger import AttemptOutput, Ledger
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.format import paths
from ffq_spark.format.digest import Digest
from ffq_spark.format.records import (
    BatchRecord,
    Offsets,
    Outcome,
    OutcomeRecord,
    StepRecord,
    StreamBatch,
)
from ffq_spark.store import Store

BATCH_WRITES = "batch writes"
"""The owner of all batch writes that neither name a `streamRun` nor run in a streaming query."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Delivery:
    """One run of one batch: whose it is, and what to do with a replay that differs."""

    stream: str
    owner: str
    batch: int
    takeover: bool = False
    on_mismatch: str = "fail"


def commit_batch(
    store: Store,
    job: WriteJob,
    outputs: Sequence[AttemptOutput],
    delivery: Delivery,
    offsets: Offsets | None = None,
) -> StepRecord | None:
    """Make a batch the next step, or discard it if it is a re-run of one in the log (None)."""
    ledger = Ledger(store)
    # An earlier batch that was committed and not published comes before this one.
    ledger.roll_forward()
    digest = sum((output.digest for output in outputs), Digest())
    first = stream_records.find(store, delivery.stream, delivery.owner, delivery.batch)
    if first is not None and first.query == job.query.query:
        raise AlreadyCommitted(f"another commit of query {first.query} came first")
    if first is not None:
        _discard_duplicate(ledger, job, delivery, digest, first)
        return None
    epoch = stream_records.own(
        store, delivery.stream, delivery.owner, delivery.batch, takeover=delivery.takeover
    )
    if delivery.batch < epoch.first:
        path = store.url(paths.stream_owner(delivery.stream, epoch.epoch))
        message = f"{_name(delivery)} is older than its first, {epoch.first}, and not in the log"
        raise StepGap(message, path=path)
    before = delivery.batch - 1
    if before >= epoch.first and not stream_records.read(
        store, delivery.stream, epoch.epoch, before
    ):
        path = store.url(paths.stream_batch(delivery.stream, epoch.epoch, before))
        raise StepGap(f"{_name(delivery)} came without batch {before}", path=path)
    batch = StreamBatch(
        delivery.stream,
        epoch.epoch,
        delivery.batch,
        digest.rows,
        digest.hash_sum,
        digest.hash_xor,
    )
    try:
        return ledger.commit(
            job.query,
            job.exchange,
            outputs,
            job.stats_fields,
            batch=batch,
            offsets=offsets,
            sort_by=job.sort_by,
        )
    except DuplicateBatch:
        winner = stream_records.read(store, delivery.stream, epoch.epoch, delivery.batch)
        assert winner is not None
        _compare(delivery, digest, winner)
        return None


def recall_discarded(store: Store, delivery: Delivery, outcome: OutcomeRecord) -> None:
    """Raise ReplayMismatch again for a run that `commit_batch` discarded because its rows differ.

    Returns for a run whose rows are those of the first run, and for one that may differ.
    """
    if outcome.code == ReplayMismatch.code and delivery.on_mismatch == "fail":
        raise ReplayMismatch(outcome.message, option="onMismatch")
    batch = outcome.step.stream if outcome.step else None
    winner = batch and stream_records.read(store, batch.stream, batch.epoch, batch.batch)
    if batch and winner:
        _compare(delivery, _digest(batch), winner)


def _discard_duplicate(
    ledger: Ledger, job: WriteJob, delivery: Delivery, digest: Digest, first: BatchRecord
) -> None:
    same = _digest(first) == digest
    code = DuplicateBatch.code if same else ReplayMismatch.code
    ledger.end(job.query.query, Outcome.ABORTED, _told(delivery, digest, first), code=code)
    _compare(delivery, digest, first)


def _compare(delivery: Delivery, digest: Digest, first: BatchRecord) -> None:
    message = _told(delivery, digest, first)
    if _digest(first) == digest:
        logger.info(message)
    elif delivery.on_mismatch == "fail":
        raise ReplayMismatch(message, option="onMismatch")
    elif delivery.on_mismatch == "warn":
        logger.warning("[%s] %s", ReplayMismatch.code, message)


def _told(delivery: Delivery, digest: Digest, first: BatchRecord) -> str:
    there = f"{_name(delivery)} is in the log already, by query {first.query}; discarded"
    if _digest(first) == digest:
        return f"{there}, its rows are the same ({digest})"
    return f"{there}, though its rows differ: first {_digest(first)}; now {digest}"


def _digest(record: BatchRecord | StreamBatch) -> Digest:
    return Digest(record.rows, record.hash_sum, record.hash_xor)


def _name(delivery: Delivery) -> str:
    return f"batch {delivery.batch} of stream {delivery.stream}"
