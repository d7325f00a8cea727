"""Which steps expire: those of replaced versions, except the newest two and what is still needed.

A step is needed by a consumer that has not read it, by a hold on a snapshot that shows it, and by a
rollback to it: of a version that stays, or one that a consumer has not read. A rollback has no rows
of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from ffq_spark.exchange.ledger import consumers
from ffq_spark.exchange.ledger.step_log import StepLog
from ffq_spark.format import paths
from ffq_spark.format.records import StepRecord
from ffq_spark.store import Store

KEPT_VERSIONS = 2


def expirable_steps(store: Store, before: int) -> Iterator[StepRecord]:
    """List the steps with data that nobody needs, of versions that were replaced before a moment.

    Consumers that skip replaced steps count like all others: their records do not tell.
    """
    # Holds are read before the log: a rollback holds what it restores until the log has it.
    restored = {hold.step for hold in consumers.holds(store)}
    progress = [consumer.step for consumer in consumers.consumers(store)]
    log = StepLog(store)
    steps = log.read_many(log.numbers())
    read_by_all = min(progress, default=len(steps))
    # A step's manifest is removed last: one without has expired already.
    there = {f"{paths.MANIFESTS}/{entry.name}" for entry in store.list(paths.MANIFESTS)}
    first_of = {step.version: step for step in reversed(steps)}
    over = {
        version
        for version in range(1, steps[-1].version - KEPT_VERSIONS + 1 if steps else 1)
        if first_of[version + 1].body.committed_at_ms <= before
    }
    for version, first in first_of.items():
        if first.body.restores and (version not in over or first.step > read_by_all):
            restored.add(first.body.restores)
    kept = {step.step for number in restored for step in log.visible(number)}
    for step in steps:
        is_needed = step.step in kept or step.step > read_by_all
        if step.version in over and not is_needed and step.body.manifest in there:
            yield step
