"""Commit a write: the outputs of its map attempts become the next step.

A stream's batch passes the rule of streams first, which may discard it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ffq_spark.errors import DuplicateBatch, ReplayMismatch, StreamOwned
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.ledger.sealing import AttemptOutput
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.exchange.write.stream_write import Admission, Delivery, admit, discard_beaten
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
    admission = Admission()
    if delivery is not None:
        digest = sum((output.digest for output in outputs), Digest())
        admitted = admit(store, job.query.query, delivery, digest)
        if admitted is None:
            return None
        admission = admitted
    try:
        return Ledger(store).commit(
            job.query,
            job.exchange,
            outputs,
            job.stats_fields,
            batch=admission.batch,
            owner=admission.owner,
            offsets=offsets,
            sort_by=job.sort_by,
        )
    except (DuplicateBatch, StreamOwned) as error:
        if delivery is None or admission.batch is None:
            raise
        discard_beaten(store, delivery, admission.batch, error)
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
    except (DuplicateBatch, StreamOwned) as error:
        if delivery is None or outcome.step.stream is None:
            raise
        discard_beaten(store, delivery, outcome.step.stream, error)
        return None
