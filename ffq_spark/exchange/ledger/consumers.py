"""Records that keep old steps: the progress of consumers, and holds."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from ffq_spark.errors import (
    BadOption,
    CorruptRecord,
    ExchangeNotFound,
    StepNotFound,
    StoreFailed,
)
from ffq_spark.exchange.ledger.step_log import StepLog
from ffq_spark.format import paths
from ffq_spark.format.ids import now_ms
from ffq_spark.format.records import JsonRecord
from ffq_spark.options import safe_name
from ffq_spark.store import Store

Check = Callable[[], None]
"""Raises StepExpired if data that the caller is about to rely on may have been deleted."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ConsumerRecord(JsonRecord):
    """The progress of a consumer: it has read everything up to and including `step`."""

    consumer: str
    step: int
    at_ms: int


@dataclass(frozen=True)
class HoldRecord(JsonRecord):
    """A request to keep the snapshot as of `step`.

    `earlier` are steps that an earlier record of this name has kept. Their snapshots are kept, too,
    until it is certain that the one of `step` is.
    """

    name: str
    step: int
    at_ms: int
    earlier: tuple[int, ...] = ()

    @property
    def steps(self) -> tuple[int, ...]:
        """All steps whose snapshots are kept."""
        return (self.step, *self.earlier)


def record_progress(store: Store, consumer: str, step: int) -> None:
    """Record that a consumer has read a step.

    >>> store = Store("memory://doc-consumers")
    >>> record_progress(store, "dashboard", 7)
    >>> [(record.consumer, record.step) for record in consumers(store)]
    [('dashboard', 7)]
    """
    record = ConsumerRecord(consumer, step, now_ms())
    store.replace(paths.consumer(consumer), record.encode())


def consumers(store: Store) -> list[ConsumerRecord]:
    """Read the progress of all consumers, sorted by name."""
    files = [f"{paths.CONSUMERS}/{entry.name}" for entry in store.list(paths.CONSUMERS)]
    pairs = zip(files, store.read_many(files), strict=True)
    records = [ConsumerRecord.decode(data, store.url(path)) for path, data in pairs if data]
    return sorted(records, key=lambda record: record.consumer)


def find(store: Store, consumer: str) -> ConsumerRecord | None:
    """Read the progress of a consumer, or return None."""
    path = paths.consumer(consumer)
    data = store.read_optional(path) if consumer else None
    return None if data is None else ConsumerRecord.decode(data, store.url(path))


def forget(store: Store, consumer: str) -> None:
    """Delete the progress of a consumer that will not come back, so that it keeps no steps."""
    store.delete(paths.consumer(_name(consumer)))


def start_consumer(store: Store, consumer: str, step: int, check: Check) -> None:
    """Record where a consumer begins, unless `check` finds that data it needs has expired.

    >>> store = Store("memory://doc-start-consumer")
    >>> start_consumer(store, "dashboard", 3, lambda: None)
    >>> find(store, "dashboard").step
    3
    """
    path, record = paths.consumer(consumer), ConsumerRecord(consumer, step, now_ms())

    def keeping(before: bytes) -> ConsumerRecord:
        # A consumer keeps all steps after its own.
        earlier = ConsumerRecord.decode(before, store.url(path))
        return replace(record, step=min(step, earlier.step))

    _record(store, path, record, keeping, check)


def hold(store: Store, name: str, step: int) -> HoldRecord:
    """Keep a step readable, with all that are visible with it, until it is released."""
    log = StepLog(store)
    last = log.last_number()
    if last == 0:
        raise ExchangeNotFound(f"nothing has been committed to {store.url()} yet")
    if not 1 <= step <= last:
        raise StepNotFound(f"there is no step {step}; the exchange has the steps 1 to {last}")
    path, record = paths.hold(_name(name)), HoldRecord(name, step, now_ms())
    visible = [kept.step for kept in log.visible(step)]

    def keeping(before: bytes) -> HoldRecord:
        steps = HoldRecord.decode(before, store.url(path)).steps
        return replace(record, earlier=tuple(sorted({*steps} - {step})))

    _record(store, path, record, keeping, lambda: log.refuse_any_expired(visible))
    return record


def _record(
    store: Store,
    path: str,
    record: JsonRecord,
    keeping: Callable[[bytes], JsonRecord],
    check: Check,
) -> None:
    """Write a record that retention respects, or leave the earlier one in force if that fails.

    Retention marks steps and then reads these records again: either it sees this record, or the
    check after the write sees the mark. Until that check has succeeded, the record on storage is
    one that also keeps what the earlier record keeps: `keeping` makes it from that record's bytes.
    So the earlier steps stay even if this process is killed, or storage fails.
    """
    check()
    before, first = store.read_optional(path), record
    if before is not None:
        try:
            first = keeping(before)
        except CorruptRecord as error:
            logger.warning("a damaged record is replaced: %s", error)
    try:
        store.replace(path, first.encode())
        check()
    except BaseException:
        _restore(store, path, before, first.encode())
        raise
    if first != record:
        try:
            store.replace(path, record.encode())
        except StoreFailed as error:
            logger.warning("%s keeps more steps than it has to: %s", store.url(path), error)


def _restore(store: Store, path: str, before: bytes | None, written: bytes) -> None:
    """Restore the earlier record. If storage fails, the written record keeps more steps."""
    try:
        # Another process may have written a record of this name since.
        if store.read_optional(path) == written:
            if before is None:
                store.delete(path)
            else:
                store.replace(path, before)
    except StoreFailed as error:
        logger.warning("cannot restore the earlier record: %s", error)


def holds(store: Store) -> list[HoldRecord]:
    """Read all holds, sorted by name."""
    files = [f"{paths.HOLDS}/{entry.name}" for entry in store.list(paths.HOLDS)]
    pairs = zip(files, store.read_many(files), strict=True)
    records = [HoldRecord.decode(data, store.url(path)) for path, data in pairs if data]
    return sorted(records, key=lambda record: record.name)


def release(store: Store, name: str) -> None:
    """Delete a hold, if it exists."""
    store.delete(paths.hold(_name(name)))


def _name(value: str) -> str:
    try:
        return safe_name(value)
    except ValueError as error:
        raise BadOption(f"{value!r}: {error}", option="name") from error
