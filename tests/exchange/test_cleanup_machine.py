"""Cleanup beside writers, zombies, commits, cancels and crashes, in any interleaving."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pytest
from cleanup_judge import SCHEMA, Judge, batch
from cleanup_stepping import FakeTime, Files, Killed, Process, open_store
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ffq_spark.errors import AlreadyCommitted, Fenced, QueryEnded
from ffq_spark.exchange import leases
from ffq_spark.exchange.cancel import end_unfinished, request_cancel
from ffq_spark.exchange.cleanup import collect
from ffq_spark.exchange.job import WriteJob
from ffq_spark.exchange.ledger import AttemptOutput, Ledger
from ffq_spark.exchange.snapshot import take_snapshot
from ffq_spark.exchange.write import prepare
from ffq_spark.exchange.writer import write_attempt
from ffq_spark.format import ids
from ffq_spark.format.records import QueryRecord
from ffq_spark.options import ReadOptions, WriteOptions
from ffq_spark.store import Store

OPTIONS = WriteOptions(keys=("k",), partitions=2)
MODES = st.sampled_from(["append", "replace"])
MAP_TASKS = 2
DRIVERS = st.integers(0, 2)
ANY = st.integers(0, 11)
KINDS = st.sampled_from(["attempt", "commit", "end", "read", "lease", "collect"])
# A process that is moved stops just before such an operation.
STOPS = st.sampled_from(
    ["create _ffq/queries", "create _ffq/steps", "delete", "list", "read", "write", "never"]
)
RIVALS = st.sampled_from(["attempt", "commit", "end", "collect"])
COLLECTOR_STOPS = st.sampled_from(["create _ffq/queries", "list _ffq/queries", "delete"])
RIVAL_STOPS = st.sampled_from(["create _ffq/queries", "create _ffq/steps", "delete", "never"])
LEASE_SECONDS = 1
START = 1_800_000_000_000
# Longer than twice the age of any query: what was settled is looked at again.
LONG = 1000 * leases.UNLEASED_MS
_ALLOWED = (Killed, Fenced, AlreadyCommitted, QueryEnded)

has_queries = precondition(lambda self: self.opened)
has_processes = precondition(lambda self: self.alive())


@dataclass
class Query:
    """A query as the test knows it."""

    record: QueryRecord
    outputs: dict[int, list[AttemptOutput]] = field(default_factory=dict)
    lapsed: bool = False


class CleanupMachine(RuleBasedStateMachine):
    """One exchange, any number of everybody."""

    transitions = 0

    @initialize(ttl_ms=st.sampled_from([0, 700]))
    def start_world(self, ttl_ms: int) -> None:
        self.files: Files = {}
        self.ttl_ms = ttl_ms
        self.clock = FakeTime(START)
        self.patch = mock.patch.object(ids, "time", self.clock)
        self.patch.start()
        self.judge = Judge(self.files, ttl_ms)
        self.opened: dict[int, Query] = {}
        self.processes: list[Process] = []
        self.attempts = 0

    def process(self, work: Any) -> Process:
        self.processes.append(Process(self.files, work))
        return self.processes[-1]

    def alive(self) -> list[Process]:
        return [process for process in self.processes if not process.done]

    def begin(self, mode: str, driver: int) -> Query:
        """Drivers 1 and 2 hold a lease; the queries of 0 have none."""
        record = QueryRecord(0, f"driver-{driver}", 0, mode, 0, LEASE_SECONDS if driver else 0)
        if driver:
            self.lease(Query(record)).finish()
        number = (self.clock.now << 21) + len(self.opened)
        record = Ledger(open_store(self.files)).begin(
            mode, record.initiator, query=number, lease_seconds=record.lease_seconds
        )
        self.opened[number] = Query(record)
        return self.opened[number]

    def lease(self, query: Query, _: int = 0) -> Process:
        initiator = query.record.initiator
        return self.process(lambda store: leases.renew(store, initiator, LEASE_SECONDS))

    def attempt(self, query: Query, number: int) -> Process:
        """A task's attempt: may end in time, too late, or never; the directory is its own."""
        self.attempts += 1
        map_task, attempt = number % MAP_TASKS, self.attempts

        def work(store: Store) -> None:
            job = WriteJob.of(prepare(store, OPTIONS, SCHEMA), query.record, OPTIONS)
            rows = [batch(query.record.query, map_task, attempt)]
            output = write_attempt(store, job, map_task, attempt, rows)
            query.outputs.setdefault(map_task, []).append(output)

        return self.process(work)

    def commit(self, query: Query, number: int) -> Process:
        """Of twin attempts one counts; a second commit may choose another."""
        chosen = [outputs[number % len(outputs)] for outputs in query.outputs.values()]

        def work(store: Store) -> int:
            exchange = prepare(store, OPTIONS, SCHEMA)
            return Ledger(store).commit(query.record, exchange, chosen).step

        return self.process(work)

    def end(self, query: Query, number: int) -> Process:
        """An abort, after a request to cancel or without."""

        def work(store: Store) -> None:
            if number % 2:
                request_cancel(store, query.record.query, "", who="me")
            end_unfinished(store, query.record.query, "failed")

        return self.process(work)

    def read(self, _: Query, __: int) -> Process:
        return self.process(lambda store: Ledger(store).roll_forward() and None)

    def collect(self, _: Query, number: int) -> Process:
        ttl_ms, retention_ms = self.ttl_ms, [None, 0, 900][number % 3]
        return self.process(
            lambda store: collect(store, ttl_ms=ttl_ms, retention_ms=retention_ms).problems
        )

    def recent(self, which: int) -> Query:
        """One of the last few: only they are of interest to anybody but zombies."""
        few = list(self.opened.values())[-3:]
        return few[which % len(few)]

    @rule(mode=MODES, driver=DRIVERS, sleeps=st.booleans())
    def open_query(self, mode: str, driver: int, sleeps: bool) -> None:
        """The driver may then sleep until it counts as lost."""
        self.attempt(self.begin(mode, driver), 0).finish()
        if sleeps:
            self.pass_time(leases.UNLEASED_MS)

    @rule(mode=MODES, driver=DRIVERS)
    def write_step(self, mode: str, driver: int) -> None:
        """A write that nothing disturbs."""
        query = self.begin(mode, driver)
        self.attempt(query, 0).finish()
        self.commit(query, 0).finish()

    @has_queries
    @rule(which=ANY, number=ANY, kind=KINDS, until=STOPS)
    def start(self, which: int, number: int, kind: str, until: str) -> None:
        """Any process, up to just before an operation of this kind, or to its end."""
        getattr(self, kind)(self.recent(which), number).advance_to(until)

    @rule(driver=DRIVERS, number=ANY, kind=RIVALS, stop=COLLECTOR_STOPS, until=RIVAL_STOPS)
    def wake_in_a_collection(
        self, driver: int, number: int, kind: str, stop: str, until: str
    ) -> None:
        """A driver that counts as lost goes on while a collector is about to fence its query."""
        query = self.begin("append", driver)
        self.attempt(query, 0).finish()
        self.pass_time(leases.UNLEASED_MS)
        collector = self.collect(query, number)
        collector.advance_to(stop)
        getattr(self, kind)(query, number).advance_to(until)
        collector.advance_to("never")

    @rule(milliseconds=st.sampled_from([1, 600, 1100, leases.UNLEASED_MS]))
    def pass_time(self, milliseconds: int) -> None:
        self.clock.now += milliseconds

    def is_live(self, record: QueryRecord) -> bool:
        """By the test's own account of the lease that is on storage now."""
        since = record.created_at_ms
        if not record.lease_seconds:
            return self.clock.now < since + leases.UNLEASED_MS
        lease = self.files.get(f"_ffq/leases/{record.initiator}.json")
        renewed = json.loads(lease)["renewed_at_ms"] if lease else 0
        return self.clock.now < max(since, renewed) + LEASE_SECONDS * 1000

    @has_processes
    @rule(which=ANY, operations=st.integers(1, 4))
    def advance(self, which: int, operations: int) -> None:
        self.alive()[which % len(self.alive())].advance(operations)

    @has_processes
    @rule(which=ANY, until=STOPS)
    def advance_to(self, which: int, until: str) -> None:
        self.alive()[which % len(self.alive())].advance_to(until)

    @has_processes
    @rule(which=ANY)
    def kill(self, which: int) -> None:
        self.alive()[which % len(self.alive())].kill()

    def check_end(self, process: Process) -> None:
        assert process.error is None or isinstance(process.error, _ALLOWED), repr(process.error)
        assert not isinstance(process.result, list) or process.result == [], "gc found problems"

    @invariant()
    def everything_holds(self) -> None:
        type(self).transitions += 1
        for process in self.processes:
            self.check_end(process)
        for query in self.opened.values():
            query.lapsed = query.lapsed or not self.is_live(query.record)
        self.judge.look(self.clock.now, lambda query: self.opened[query].lapsed)

    def teardown(self) -> None:
        if not hasattr(self, "patch"):
            return
        try:
            for process in self.processes:
                process.kill()
                self.check_end(process)
            self.rest()
        finally:
            self.patch.stop()

    def rest(self) -> None:
        """All are dead and all time has passed: a reader and two collections bring peace."""
        self.pass_time(LONG)
        store = open_store(self.files)
        if not self.opened:
            return
        Ledger(store).roll_forward()
        self.everything_holds()
        first = collect(store, ttl_ms=self.ttl_ms, retention_ms=0)
        self.everything_holds()
        again = collect(store, ttl_ms=self.ttl_ms, retention_ms=0)
        self.everything_holds()
        assert first.problems == again.problems == []
        assert (again.files, again.fenced, again.expired) == (0, [], [])
        self.judge.check_at_rest(set(self.opened))
        if self.judge.log:
            take_snapshot(store, ReadOptions()).parts()


def run(examples: int, transitions: int) -> None:
    class Campaign(CleanupMachine):
        pass

    Campaign.transitions = 0
    profile = settings(
        max_examples=examples,
        stateful_step_count=50,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Campaign, settings=profile)
    assert Campaign.transitions >= transitions


def test_no_interleaving_loses_a_committed_row_or_leaves_an_orphan() -> None:
    run(examples=150, transitions=5_000)


@pytest.mark.soak
def test_no_interleaving_loses_a_committed_row_or_leaves_an_orphan_soak() -> None:
    run(examples=3_000, transitions=100_000)
