"""Commit a write: the outputs of its map attempts become the next step.

A stream's batch passes the rule of streams first, which may discard it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ffq_spark.errors import DuplicateBatch, ReplayMismatch
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.ledger.sealing import AttemptOutput
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.exchange.write.stream_write import Delivery, admit, discard_beaten
from ffq_spark.format.digest import Digest
from ffq_spark.format.records import Offsets, OutcomeRecord, StepRecord
from ffq_spark.store import Store


def commit_write(
    store: Store,
    job: WriteJob,
    outputs: Sequence[AttemptOutput],
    delivery: Delivery | None = None,
    offsets: Offsets | None = None,
) -> StepRecord | None:
    """Commit a write as the next step; return None for a stream's batch that is in the log already.

    `delivery` names the stream and the batch of the write; it is None outside of streams.
    """
    batch = None
    if delivery is not None:
        digest = sum((output.digest for output in outputs), Digest())
        batch = admit(store, job.query.query, delivery, digest)
        if batch is None:
            return None
    try:
        return Ledger(store).commit(
            job.query,
            job.exchange,
            outputs,
            job.stats_fields,
            batch=batch,
            offsets=offsets,
            sort_by=job.sort_by,
        )
    except DuplicateBatch:
        if delivery is None or batch is None:
            raise
        discard_beaten(store, delivery, batch)
        return None


def repeat_answer(
    store: Store, outcome: OutcomeRecord, delivery: Delivery | None
) -> StepRecord | None:
    """Answer the commit of a query that has ended: its step, or None if its batch was discarded.

    Raises ReplayMismatch again for a batch that was discarded because its rows differ.
    """
    if outcome.step is None:
        strict = delivery is not None and delivery.on_mismatch == "fail"
        if strict and outcome.code == ReplayMismatch.code:
            raise ReplayMismatch(outcome.message, option="onMismatch")
        return None
    try:
        return Ledger(store).confirm(outcome)
    except DuplicateBatch:
        if delivery is not None and outcome.step.stream is not None:
            discard_beaten(store, delivery, outcome.step.stream)
        return None
