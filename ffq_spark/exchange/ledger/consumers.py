"""Who still needs old steps: consumers, by how far they have read, and holds, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ffq_spark.errors import BadOption, ExchangeNotFound, StepExpired, StepNotFound
from ffq_spark.exchange.ledger.step_log import StepLog
from ffq_spark.format import paths
from ffq_spark.format.ids import now_ms
from ffq_spark.format.records import JsonRecord
from ffq_spark.options import safe_name
from ffq_spark.store import Store

Check = Callable[[], None]
"""Raises StepExpired if data that somebody is about to rely on may have been removed."""


@dataclass(frozen=True)
class ConsumerRecord(JsonRecord):
    """A consumer has read everything up to and including `step`."""

    consumer: str
    step: int
    at_ms: int


@dataclass(frozen=True)
class HoldRecord(JsonRecord):
    """Someone asked to keep `step` and what is visible with it."""

    name: str
    step: int
    at_ms: int


def record_progress(store: Store, consumer: str, step: int) -> None:
    """Write down that a consumer has read a step.

    >>> store = Store("memory://doc-consumers")
    >>> record_progress(store, "dashboard", 7)
    >>> [(found.consumer, found.step) for found in consumers(store)]
    [('dashboard', 7)]
    """
    record = ConsumerRecord(consumer, step, now_ms())
    store.replace(paths.consumer(consumer), record.encode())


def consumers(store: Store) -> list[ConsumerRecord]:
    """Every consumer that has recorded progress."""
    files = [f"{paths.CONSUMERS}/{entry.name}" for entry in store.list(paths.CONSUMERS)]
    pairs = zip(files, store.read_many(files), strict=True)
    found = [ConsumerRecord.decode(data, store.url(path)) for path, data in pairs if data]
    return sorted(found, key=lambda record: record.consumer)


def find(store: Store, consumer: str) -> ConsumerRecord | None:
    """How far one consumer has come."""
    path = paths.consumer(consumer)
    data = store.read_optional(path) if consumer else None
    return None if data is None else ConsumerRecord.decode(data, store.url(path))


def forget(store: Store, consumer: str) -> None:
    """Let retention pass a consumer that will not come back."""
    store.delete(paths.consumer(_name(consumer)))


def start_consumer(store: Store, consumer: str, step: int, check: Check) -> None:
    """Record where a consumer begins, unless `check` finds that data it needs has expired.

    >>> store = Store("memory://doc-start-consumer")
    >>> start_consumer(store, "dashboard", 3, lambda: None)
    >>> find(store, "dashboard").step
    3
    """
    _record(store, paths.consumer(consumer), ConsumerRecord(consumer, step, now_ms()), check)


def hold(store: Store, name: str, step: int) -> HoldRecord:
    """Keep a step readable, with all that are visible with it, until it is released."""
    log = StepLog(store)
    last = log.last_number()
    if last == 0:
        raise ExchangeNotFound(f"nothing has been committed to {store.url()} yet")
    if not 1 <= step <= last:
        raise StepNotFound(f"there is no step {step}; there are 1 to {last}")
    record = HoldRecord(_name(name), step, now_ms())
    visible = [kept.step for kept in log.visible(step)]
    _record(store, paths.hold(name), record, lambda: log.refuse_any_expired(visible))
    return record


def _record(store: Store, path: str, record: JsonRecord, check: Check) -> None:
    """Write a record that retention respects; restore the one before if `check` fails.

    Retention marks steps and then reads these records again: either it sees this one, or the
    check after the write sees the mark. The check before the write keeps a record of the same name
    in force whenever the answer is known already.
    """
    check()
    before, data = store.read_optional(path), record.encode()
    store.replace(path, data)
    try:
        check()
    except StepExpired:
        # Another process may have recorded itself under this name meanwhile.
        if store.read_optional(path) == data:
            if before is None:
                store.delete(path)
            else:
                store.replace(path, before)
        raise


def holds(store: Store) -> list[HoldRecord]:
    """Every hold."""
    files = [f"{paths.HOLDS}/{entry.name}" for entry in store.list(paths.HOLDS)]
    pairs = zip(files, store.read_many(files), strict=True)
    found = [HoldRecord.decode(data, store.url(path)) for path, data in pairs if data]
    return sorted(found, key=lambda record: record.name)


def release(store: Store, name: str) -> None:
    """End a hold."""
    store.delete(paths.hold(_name(name)))


def _name(value: str) -> str:
    try:
        return safe_name(value)
    except ValueError as error:
        raise BadOption(f"{value!r} is {error}", option="name") from error
