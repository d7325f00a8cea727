"""Which steps expire: those of versions that were replaced, except the newest two.

A version that stays keeps what it restores: a rollback has no rows of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from ffq_spark.exchange.log import StepLog
from ffq_spark.format import layout
from ffq_spark.format.records import StepRecord
from ffq_spark.store import Store

KEPT_VERSIONS = 2


def expirable_steps(store: Store, before: int) -> Iterator[StepRecord]:
    """Steps that have data, of versions that were replaced before a moment; two versions stay."""
    log = StepLog(store)
    steps = log.read_many(log.numbers())
    # A step's manifest is removed last: one without has expired already.
    there = {f"{layout.MANIFESTS}/{entry.name}" for entry in store.list(layout.MANIFESTS)}
    first_of = {step.version: step for step in reversed(steps)}
    over = {
        version
        for version in range(1, steps[-1].version - KEPT_VERSIONS + 1 if steps else 1)
        if first_of[version + 1].body.committed_at_ms <= before
    }
    staying = (step.body for version, step in first_of.items() if version not in over)
    restored = (log.visible(body.restores) for body in staying if body.restores)
    kept = {step.step for version in restored for step in version}
    for step in steps:
        if step.version in over and step.step not in kept and step.body.manifest in there:
            yield step
