"""Pausing an exchange: all its streams come to rest at one step, whatever their speed.

Two records decide the step. The first stops every stream where it is; only then is the newest step
looked up, so that no stream can be past it; the second, created once, lets the slower ones come up
to it. A stream looks at the log first and at these second: if it saw no pause, what it saw of the
log is older than the pause's step.
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
    """No stream reads beyond this step."""

    step: int
    at_ms: int


def pause(store: Store, at: int | None = None) -> int:
    """Let all streams that read this exchange come to rest at one step, and say which.

    `at` may be a step that has yet to come. A pause that is there already stays as it is.

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
        raise StepNotFound(f"streams cannot rest at step {step}; the newest is {last}")
    store.create_once(paths.PAUSE_STEP, PauseRecord(step, now_ms()).encode())
    return _step(store) or step


def resume(store: Store) -> None:
    """Let streams go on. The step goes first: one that is left could hold back a later pause."""
    store.delete(paths.PAUSE_STEP)
    store.delete(paths.PAUSE)


def paused_at(store: Store) -> int | None:
    """The step at which streams rest, if there is a pause; 0 while it is being decided."""
    return None if store.read_optional(paths.PAUSE) is None else _step(store) or 0


def resting_place(store: Store, start: int, latest: int) -> int:
    """How far a stream that has read `start` may go now; `latest` was looked up before."""
    step = paused_at(store)
    return latest if step is None else min(latest, max(step, start))


def _step(store: Store) -> int | None:
    data = store.read_optional(paths.PAUSE_STEP)
    return None if data is None else PauseRecord.decode(data, store.url(paths.PAUSE_STEP)).step
