"""Small exchanges with all kinds of garbage, and with the data that gc must keep."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
from conftest import Place
from layouts import write_options

from ffq_spark import Exchange
from ffq_spark.exchange.ledger import leases
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.ledger.sealing import AttemptOutput
from ffq_spark.exchange.maintenance.deletion import GcReport
from ffq_spark.exchange.maintenance.gc import collect_garbage
from ffq_spark.exchange.write.attempt_writer import write_attempt
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.exchange.write.prepare import prepare
from ffq_spark.format import paths
from ffq_spark.format.ids import new_query
from ffq_spark.format.records import Outcome, OutcomeRecord, QueryRecord, StepRecord
from ffq_spark.store import Store

Rows = Counter[tuple[Any, ...]]

SCHEMA = pa.schema([("k", pa.int64()), ("query", pa.int64()), ("attempt", pa.int64())])
OPTIONS = write_options(keys=("k",), partitions=2)
TTL_MS = 10_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def batch(query: int, map_task: int, attempt: int) -> pa.RecordBatch:
    """Make rows that name their attempt, so that a test notices rows of an attempt that lost."""
    keys = range(map_task * 10, map_task * 10 + 5)
    return pa.record_batch([list(keys), [query] * 5, [attempt] * 5], schema=SCHEMA)


class Scene:
    """One root, with methods for each thing that writers and gc do to it."""

    def __init__(self, place: Place, store: Store | None = None) -> None:
        self.place = place
        self.store = store or Store(place.root, place.storage_options)
        self.ledger = Ledger(self.store)
        self.exchange = Exchange(place.root, place.storage_options)

    def begin(self, mode: str = "append", lease_seconds: int = 0) -> QueryRecord:
        number = new_query()
        if lease_seconds:
            leases.renew(self.store, f"app-{number}", lease_seconds)
        return self.ledger.begin(mode, f"app-{number}", query=number, lease_seconds=lease_seconds)

    def attempt(
        self, query: QueryRecord, attempt: int = 1, map_task: int = 0, *, empty: bool = False
    ) -> AttemptOutput:
        job = WriteJob.of(prepare(self.store, OPTIONS, SCHEMA), query, OPTIONS)
        rows = [] if empty else [batch(query.query, map_task, attempt)]
        return write_attempt(self.store, job, map_task, attempt, rows)

    def commit(self, query: QueryRecord, *outputs: AttemptOutput) -> StepRecord:
        return self.ledger.commit(query, prepare(self.store, OPTIONS, SCHEMA), outputs)

    def write(self, mode: str = "append") -> StepRecord:
        query = self.begin(mode)
        return self.commit(query, self.attempt(query))

    def twins(self) -> tuple[StepRecord, OutcomeRecord]:
        """Write a step whose attempt 1 is registered; attempt 2 is larger, complete and stale."""
        query = self.begin()
        outputs = [self.attempt(query, number) for number in (1, 2)]
        step = self.commit(query, outputs[0])
        return step, self.outcome(query.query)

    def ended(self, outcome: Outcome = Outcome.ABORTED) -> OutcomeRecord:
        query = self.begin()
        self.attempt(query)
        return self.ledger.end(query.query, outcome, "")

    def outcome(self, query: int) -> OutcomeRecord:
        outcome = self.ledger.outcome(query)
        assert outcome is not None
        return outcome

    def gc(self, now: int, ttl_ms: int = TTL_MS, **options: Any) -> GcReport:
        return collect_garbage(self.store, ttl_ms=ttl_ms, now=now, **options)

    def data(self, query: int | None = None, attempt: int | None = None) -> set[str]:
        """List the data files of the root, of a query, or of one attempt of each map task."""
        place = paths.DATA if query is None else f"{paths.DATA}/{query}"
        return {
            path
            for path, _ in self.store.walk(place)
            if attempt is None or path.split("/")[4] == str(attempt)
        }

    def everything(self) -> set[tuple[str, int]]:
        return set(self.store.walk(""))

    def rows(self, **options: Any) -> Rows:
        table = self.exchange.read(**options).read_all()
        return Counter(tuple(row.values()) for row in table.to_pylist())


def rows_of(*steps: StepRecord) -> Rows:
    """Count the rows of the registered attempts of steps, which a reader must see."""
    return Counter(
        tuple(row.values())
        for step in steps
        for map_task, attempt in step.body.attempts.items()
        for row in batch(step.body.query, map_task, attempt).to_pylist()
    )
