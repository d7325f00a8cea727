"""Consumers, holds and rollbacks as processes that keep steps from expiring."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql.types import LongType, StructField, StructType
from stepping import Files, Killed, Process

from ffq_spark.errors import ExchangeNotFound, Fenced, QueryEnded, StepExpired, StepNotFound
from ffq_spark.exchange.ledger import consumers
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.maintenance import versions
from ffq_spark.exchange.read.serial_read import read_parts
from ffq_spark.exchange.scan.following import steps_between
from ffq_spark.exchange.scan.snapshot import Snapshot
from ffq_spark.options import ReadOptions
from ffq_spark.spark.stream_reader import ExchangeStreamReader
from ffq_spark.store import Store

Work = Callable[[Store], object]

REFUSALS = (Killed, Fenced, QueryEnded, StepExpired, StepNotFound, ExchangeNotFound)
_COLUMNS = StructType([StructField(name, LongType()) for name in ("k", "query", "attempt")])


def rollback(step: int) -> Work:
    return lambda store: versions.rollback(store, step)


def hold(name: str, step: int) -> Work:
    return lambda store: consumers.hold(store, name, step)


def begin_stream(name: str, step: int) -> Work:
    """Start a stream at a step; step 0 means `latest`."""
    start = str(step) if step else "latest"
    options = ReadOptions(consumer=name, starting_step=start, on_replace="follow")
    return lambda store: ExchangeStreamReader(store, options, _COLUMNS).initialOffset()


def follow(name: str) -> Work:
    """Read everything that a consumer has not read, and record its progress."""

    def work(store: Store) -> None:
        consumer = consumers.find(store, name)
        ledger = Ledger(store)
        exchange, last = ledger.exchange(), ledger.log.last_number()
        assert consumer is not None and exchange is not None
        options = ReadOptions(on_replace="follow")
        steps = steps_between(ledger.log, consumer.step, last, options)
        parts = Snapshot(store, exchange, steps).parts()
        for _ in read_parts(store, parts, exchange.schema):
            pass
        consumers.record_progress(store, name, last)

    return work


class Claims:
    """The records of consumers and holds that are in force, by their paths."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._asking: dict[str, Process] = {}
        self.granted: set[str] = set()

    def is_asking(self, path: str) -> bool:
        """Return whether a running process may change a record."""
        return path in self._asking

    def ask(self, path: str, process: Process) -> None:
        """Register a process that writes a record, which is granted if the process succeeds."""
        self._asking[path] = process

    def drop(self, path: str) -> None:
        """Note that a record may change or disappear from now on."""
        self.granted.discard(path)

    def grant_finished(self) -> None:
        """Grant the records of the processes that have succeeded."""
        for path, process in list(self._asking.items()):
            if process.done:
                del self._asking[path]
                if process.error is None:
                    self.granted.add(path)

    def on_storage(self) -> set[str]:
        return {p for p in self._files if p.startswith(("_ffq/holds/", "_ffq/consumers/"))}
