"""Which steps expire: those of versions that were replaced, except the newest two."""

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
    for step in steps:
        successor = first_of.get(step.version + 1)
        if successor is None or step.version > steps[-1].version - KEPT_VERSIONS:
            return
        if successor.body.committed_at_ms <= before and step.body.manifest in there:
            yield step
