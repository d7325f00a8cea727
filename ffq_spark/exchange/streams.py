"""The write rule of streams: each batch becomes a step once, however often it is run.

A batch older than its epoch's first is discarded. One that is in the log is a duplicate: discarded
after its rows were compared with the first run's. The next one is appended; one beyond it is a gap.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from ffq_spark.errors import DuplicateBatch, ReplayMismatch, StepGap
from ffq_spark.exchange import batches
from ffq_spark.exchange.job import WriteJob
from ffq_spark.exchange.ledger import AttemptOutput, Ledger
from ffq_spark.format import layout
from ffq_spark.format.digest import Digest
from ffq_spark.format.records import BatchRecord, Offsets, Outcome, StepRecord, StreamBatch
from ffq_spark.store import Store

BATCH_WRITES = "batch writes"
"""The owner of streams that batch writes make by `streamId` and `batch`."""

ON_MISMATCH = ("warn", "fail", "ignore")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Delivery:
    """One run of one batch: whose it is, and what to do with a replay that differs."""

    stream: str
    owner: str
    batch: int
    takeover: bool = False
    on_mismatch: str = "warn"


def commit_batch(
    store: Store,
    job: WriteJob,
    outputs: Sequence[AttemptOutput],
    delivery: Delivery,
    offsets: Offsets | None = None,
) -> StepRecord | None:
    """Make a batch the next step, unless it is one already; None if it was discarded."""
    ledger = Ledger(store)
    # An earlier batch that was committed and not published comes before this one.
    ledger.roll_forward()
    digest = sum((output.digest for output in outputs), Digest())
    first = batches.find(store, delivery.stream, delivery.owner, delivery.batch)
    if first is not None:
        _discard_duplicate(ledger, job, delivery, digest, first)
        return None
    epoch = batches.own(
        store, delivery.stream, delivery.owner, delivery.batch, takeover=delivery.takeover
    )
    if delivery.batch < epoch.first:
        message = f"{_name(delivery)} is older than the stream's first, {epoch.first}; discarded"
        ledger.end(job.query.query, Outcome.ABORTED, message, code=DuplicateBatch.code)
        logger.warning(message)
        return None
    before = delivery.batch - 1
    if before >= epoch.first and not batches.read(store, delivery.stream, epoch.epoch, before):
        path = store.url(layout.stream_batch(delivery.stream, epoch.epoch, before))
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
        winner = batches.read(store, delivery.stream, epoch.epoch, delivery.batch)
        assert winner is not None
        _compare(delivery, digest, winner)
        return None


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


def _digest(record: BatchRecord) -> Digest:
    return Digest(record.rows, record.hash_sum, record.hash_xor)


def _name(delivery: Delivery) -> str:
    return f"batch {delivery.batch} of stream {delivery.stream}"
