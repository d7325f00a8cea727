"""Retention: which steps of replaced versions expire.

The two newest versions never expire. A step of an older version is kept while it is needed: by a
consumer that has not read it, by a hold on a snapshot that shows it, or by a rollback to it that
belongs to a kept version or that a consumer has not read. A rollback has no rows of its own.
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
    """Yield the steps that have data, are not needed, and were replaced before a moment.

    A consumer that skips replaced steps counts like any other: its record does not say so.

    >>> list(expirable_steps(Store("memory://doc-retention"), before=0))
    []
    """
    # Holds are read before the log: a rollback holds what it restores until the log names it.
    restored = {step for hold in consumers.holds(store) for step in hold.steps}
    progress = [consumer.step for consumer in consumers.consumers(store)]
    log = StepLog(store)
    steps = log.read_many(log.numbers())
    read_by_all = min(progress, default=len(steps))
    # A step's manifest is deleted last: a step without one has already expired.
    manifests = {f"{paths.MANIFESTS}/{entry.name}" for entry in store.list(paths.MANIFESTS)}
    first_of = {step.version: step for step in reversed(steps)}
    replaced = {
        version
        for version in range(1, steps[-1].version - KEPT_VERSIONS + 1 if steps else 1)
        if first_of[version + 1].body.committed_at_ms <= before
    }
    for version, first in first_of.items():
        if first.body.restores and (version not in replaced or first.step > read_by_all):
            restored.add(first.body.restores)
    kept = {step.step for number in restored for step in log.visible(number)}
    for step in steps:
        is_needed = step.step in kept or step.step > read_by_all
        if step.version in replaced and not is_needed and step.body.manifest in manifests:
            yield step
