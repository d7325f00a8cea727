"""Pause an exchange: all streams that read it come to rest at the same step.

Two records decide the step. The first stops every stream where it is. Only then is the newest step
looked up, so that no stream can be past it. The second record, created once, lets slower streams
read up to that step. A stream reads the log before these records: if it saw no pause, the steps
that it saw are older than the pause's step.
"""

from __future__ import annotations

from dataclasses import dataclass

from ffq_spark.errors import StepNotFound
from ffq_spark.exchange.ledger.step_log import StepLog
from ffq_spark.format import paths
from ffq_spark.format.ids import now_ms
from ffq_spark.format.records import JsonRecord
from ffq_spark.store import Store


@dataclass(frozen=True)
class PauseRecord(JsonRecord):
    """The step beyond which no stream reads."""

    step: int
    at_ms: int


def pause(store: Store, at: int | None = None) -> int:
    """Bring all streams that read this exchange to rest at one step, and return the step.

    `at` may be a future step. An existing pause does not change.

    >>> from ffq_spark.examples import tiny_exchange
    >>> exchange = tiny_exchange("memory://doc-pause")
    >>> exchange.pause(), exchange.pause()
    (1, 1)
    >>> exchange.resume()
    """
    store.create_once(paths.PAUSE, b"{}\n")
    last = StepLog(store).last_number()
    step = last if at is None else at
    if step < max(last, 1):
        if _step(store) is None:
            resume(store)
        if not last:
            raise StepNotFound("the exchange has no step yet: give step 1 or a later step")
        message = f"step {step} is before the newest step {last}: give {last} or a later step"
        raise StepNotFound(message)
    store.create_once(paths.PAUSE_STEP, PauseRecord(step, now_ms()).encode())
    return _step(store) or step


def resume(store: Store) -> None:
    """End a pause. Delete its step first, because a step that is left would end a later pause."""
    store.delete(paths.PAUSE_STEP)
    store.delete(paths.PAUSE)


def paused_at(store: Store) -> int | None:
    """Return the step at which streams rest, 0 while it is undecided, None without a pause."""
    return None if store.read_optional(paths.PAUSE) is None else _step(store) or 0


def resting_place(store: Store, start: int, latest: int) -> int:
    """Return the last step that a stream which has read `start` may read now.

    `latest` must have been looked up before the call.
    """
    step = paused_at(store)
    return latest if step is None else min(latest, max(step, start))


def _step(store: Store) -> int | None:
    data = store.read_optional(paths.PAUSE_STEP)
    return None if data is None else PauseRecord.decode(data, store.url(paths.PAUSE_STEP)).step
