"""Pause an exchange: all streams that read it come to rest at the same step.

Two records decide the step. The first stops every stream where it is. Only then is the newest step
looked up, so that no stream can be past it. The second record, created once, lets slower streams
read up to that step. A stream reads the log before these records: if it saw no pause, the steps
that it saw are older than the pause's step.

The second record is named after the nonce in the first one, so that a step which is left by a pause
that was resumed means nothing to a later pause.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from ffq_spark.errors import CorruptRecord, StepNotFound
from ffq_spark.exchange.ledger.step_log import StepLog
from ffq_spark.format import paths
from ffq_spark.format.ids import now_ms
from ffq_spark.format.records import JsonRecord
from ffq_spark.store import Store

# What earlier versions wrote at the beginning of a pause.
_WITHOUT_NONCE = b"{}\n"


@dataclass(frozen=True)
class AskedRecord(JsonRecord):
    """The beginning of a pause."""

    nonce: str
    at_ms: int


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
    log = StepLog(store)
    _choose(at, log.last_number())
    while True:
        own = secrets.token_hex(8)
        store.create_once(paths.PAUSE, AskedRecord(own, now_ms()).encode())
        nonce = _asked(store)
        if nonce is None:
            continue
        try:
            step = _choose(at, log.last_number())
        except StepNotFound:
            # A writer passed `at` after the first look. Another process may share the pause.
            if nonce == own and _step(store, nonce) is None:
                resume(store)
            raise
        store.create_once(paths.pause_step(nonce), PauseRecord(step, now_ms()).encode())
        decided = _step(store, nonce)
        # Begin again if `resume` ended this pause in the meantime.
        if decided is not None and _asked(store) == nonce:
            return decided


def _choose(at: int | None, last: int) -> int:
    step = last if at is None else at
    if step < max(last, 1):
        if not last:
            raise StepNotFound("the exchange has no step yet: give step 1 or a later step")
        message = f"step {step} is before the newest step {last}: give {last} or a later step"
        raise StepNotFound(message)
    return step


def resume(store: Store) -> None:
    """End a pause, and delete the steps of all pauses that began before this call."""
    files = [f"{paths.PAUSES}/{entry.name}" for entry in store.list(paths.PAUSES)]
    store.delete(paths.PAUSE)
    for path in files:
        if path != paths.PAUSE:
            store.delete(path)


def paused_at(store: Store) -> int | None:
    """Return the step at which streams rest, 0 while it is undecided, None without a pause."""
    nonce = _asked(store)
    return None if nonce is None else _step(store, nonce) or 0


def resting_place(store: Store, start: int, latest: int) -> int:
    """Return the last step that a stream which has read `start` may read now.

    `latest` must have been looked up before the call.
    """
    step = paused_at(store)
    return latest if step is None else min(latest, max(step, start))


def _asked(store: Store) -> str | None:
    """Return the nonce of the present pause, "" for an old one, or None without a pause."""
    data, path = store.read_optional(paths.PAUSE), store.url(paths.PAUSE)
    if data is None:
        return None
    if data == _WITHOUT_NONCE:
        return ""
    nonce = AskedRecord.decode(data, path).nonce
    if not nonce.isalnum():
        raise CorruptRecord("the nonce of the pause names no file", path=path)
    return nonce


def _step(store: Store, nonce: str) -> int | None:
    """Return the step of a pause, or None while it is undecided."""
    path = paths.pause_step(nonce)
    data = store.read_optional(path)
    return None if data is None else PauseRecord.decode(data, store.url(path)).step
