"""The versions of an exchange, and rollbacks to one of their steps.

A rollback is a step like any other: it replaces what was visible, has no parts of its own and names
the step that it restores. History is never rewritten, so a rollback can be rolled back too.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import groupby

from ffq_spark.errors import StoreFailed
from ffq_spark.exchange.ledger import consumers
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.ledger.step_log import StepLog
from ffq_spark.exchange.scan.snapshot import take_snapshot
from ffq_spark.exchange.write.prepare import new_initiator
from ffq_spark.format import paths
from ffq_spark.format.records import Outcome, StepRecord
from ffq_spark.options import ReadOptions
from ffq_spark.store import Store

_HOLD = "rollback-"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Version:
    """The steps from one replacing step to the next, and what a reader of the last one sees.

    `rows`, `bytes` and `steps` include the snapshot that a rollback `restores`. `expired` is true
    if retention may have deleted some of these data.
    """

    version: int
    first_step: int
    last_step: int
    rows: int
    bytes: int
    steps: int
    committed_at_ms: int
    expired: bool
    restores: int


def versions(store: Store) -> list[Version]:
    """List all versions of an exchange, oldest first.

    >>> from ffq_spark.examples import tiny_exchange
    >>> exchange = tiny_exchange("memory://doc-versions")
    >>> [(each.version, each.last_step, each.rows) for each in exchange.versions()]
    [(1, 1, 6)]
    """
    steps = take_snapshot(store, ReadOptions(steps="all")).steps
    log = StepLog(store)
    expired = log.expired()
    listed = []
    for version, group in groupby(steps, key=lambda step: step.version):
        own = list(group)
        first, last = own[0], own[-1]
        restores = first.body.restores
        visible = [*(log.visible(restores) if restores else ()), *own]
        listed.append(
            Version(
                version=version,
                first_step=first.step,
                last_step=last.step,
                rows=sum(step.body.rows for step in visible),
                bytes=sum(step.body.bytes for step in visible),
                steps=len(visible),
                committed_at_ms=last.body.committed_at_ms,
                expired=any(step.step in expired for step in visible),
                restores=restores,
            )
        )
    return listed


def rollback(store: Store, step: int) -> StepRecord:
    """Commit a new step that makes the snapshot as of an earlier step current again.

    >>> from ffq_spark.examples import tiny_exchange
    >>> for _ in range(2):
    ...     exchange = tiny_exchange("memory://doc-rollback")
    >>> exchange.rollback(1).step, exchange.info().rows
    (3, 6)
    """
    snapshot = take_snapshot(store, ReadOptions(as_of_step=step))
    # Plan the parts now: a snapshot that cannot be planned could not be read after the rollback.
    snapshot.parts()
    ledger = Ledger(store)
    try:
        release_finished(store, ledger)
    except StoreFailed as error:
        logger.warning("cannot release the holds of earlier rollbacks: %s", error)
    query = ledger.begin("replace", new_initiator())
    hold = f"{_HOLD}{query.query}"
    try:
        # Retention finds the restored step in the log only once the rollback is published.
        consumers.hold(store, hold, step)
        record = ledger.commit(query, snapshot.founding, (), restores=step)
    except BaseException as error:
        ended = ledger.give_up(query.query, error)
        if ended is not None and ended.outcome is not Outcome.COMMITTED:
            _release(store, hold)
        raise
    _release(store, hold)
    return record


def _release(store: Store, hold: str) -> None:
    """Release a rollback's hold; if storage fails, the next rollback or gc run releases it."""
    try:
        consumers.release(store, hold)
    except StoreFailed as error:
        logger.warning("cannot release hold %s; a later rollback will: %s", hold, error)


def release_finished(store: Store, ledger: Ledger) -> None:
    """Release the holds of rollbacks that have ended: a published one is in the log instead."""
    for hold in consumers.holds(store):
        query = paths.parse_number(hold.name.removeprefix(_HOLD))
        if not hold.name.startswith(_HOLD) or query is None:
            continue
        outcome = ledger.outcome(query)
        if outcome and (outcome.step is None or ledger.log.find(outcome)):
            consumers.release(store, hold.name)
