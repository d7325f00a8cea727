"""gc concurrent with writers, zombies, rollbacks, consumers, holds and crashes, in random order."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pytest
from campaigns import CountedMachine, campaign
from gc_claims import REFUSALS, Claims, begin_stream, follow, hold, rollback
from gc_judge import SCHEMA, Judge, batch
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from layouts import write_options
from stepping import FakeTime, Files, Killed, Process, open_store

from ffq_spark.errors import AlreadyCommitted, Fenced, QueryEnded
from ffq_spark.exchange.ledger import consumers, leases
from ffq_spark.exchange.ledger.cancel import end_unfinished, request_cancel
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.ledger.sealing import AttemptOutput
from ffq_spark.exchange.maintenance.gc import collect_garbage
from ffq_spark.exchange.scan.snapshot import take_snapshot
from ffq_spark.exchange.write.attempt_writer import write_attempt
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.exchange.write.prepare import prepare
from ffq_spark.format import ids
from ffq_spark.format.records import QueryRecord
from ffq_spark.options import ReadOptions
from ffq_spark.store import Store

OPTIONS = write_options(keys=("k",), partitions=2)
MODES = st.sampled_from(["append", "replace"])
MAP_TASKS = 2
DRIVERS = st.integers(0, 2)
ANY = st.integers(0, 11)
KINDS = st.sampled_from(["attempt", "commit", "end", "read", "lease", "gc"])
# A process advances until just before an operation with such a name.
STOPS = st.sampled_from(
    ["create _ffq/queries", "create _ffq/steps", "delete", "list", "read", "write", "never"]
)
RIVALS = st.sampled_from(["attempt", "commit", "end", "gc"])
GC_STOPS = st.sampled_from(["create _ffq/queries", "list _ffq/queries", "delete"])
RIVAL_STOPS = st.sampled_from(["create _ffq/queries", "create _ffq/steps", "delete", "never"])
CLAIMS = st.sampled_from(["roll_back", "claim_hold", "consume"])
CLAIM_STOPS = st.sampled_from(
    ["replace _ffq", "list _ffq/expired", "create _ffq/steps", "delete", "never"]
)
EXPIRY_STOPS = st.sampled_from(
    ["list _ffq/holds", "create _ffq/expired", "list _ffq/manifests", "delete", "never"]
)
LEASE_SECONDS = 1
START = 1_800_000_000_000
# Longer than twice the age of any query, so that gc checks every query again.
LONG = 1000 * leases.UNLEASED_MS
_ALLOWED = (Killed, Fenced, AlreadyCommitted, QueryEnded)

has_queries = precondition(lambda self: self.opened)
has_processes = precondition(lambda self: self.alive())


@dataclass
class Query:
    """The state of a query, as the test expects it."""

    record: QueryRecord
    outputs: dict[int, list[AttemptOutput]] = field(default_factory=dict)
    lapsed: bool = False


class GcMachine(CountedMachine):
    """One exchange, with any number of concurrent processes."""

    @initialize(ttl_ms=st.sampled_from([0, 700]))
    def start_world(self, ttl_ms: int) -> None:
        self.files: Files = {}
        self.ttl_ms = ttl_ms
        self.clock = FakeTime(START)
        self.patch = mock.patch.object(ids, "time", self.clock)
        self.patch.start()
        self.judge = Judge(self.files, ttl_ms)
        self.claims = Claims(self.files)
        self.opened: dict[int, Query] = {}
        self.rollbacks: dict[int, Query] = {}
        self.processes: list[Process] = []
        self.may_be_refused: list[Process] = []
        self.attempts = 0

    def process(self, work: Any) -> Process:
        self.processes.append(Process(self.files, work))
        return self.processes[-1]

    def alive(self) -> list[Process]:
        return [process for process in self.processes if not process.done]

    def begin(self, mode: str, driver: int) -> Query:
        """Begin a query. Drivers 1 and 2 have a lease, driver 0 has none."""
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
        """Start an attempt with its own directory; it may end in time, too late, or never."""
        self.attempts += 1
        map_task, attempt = number % MAP_TASKS, self.attempts

        def work(store: Store) -> None:
            job = WriteJob.of(prepare(store, OPTIONS, SCHEMA), query.record, OPTIONS)
            rows = [batch(query.record.query, map_task, attempt)]
            output = write_attempt(store, job, map_task, attempt, rows)
            query.outputs.setdefault(map_task, []).append(output)

        return self.process(work)

    def commit(self, query: Query, number: int) -> Process:
        """Commit one output of each map task; a second commit may choose another attempt."""
        chosen = [outputs[number % len(outputs)] for outputs in query.outputs.values()]

        def work(store: Store) -> int:
            exchange = prepare(store, OPTIONS, SCHEMA)
            return Ledger(store).commit(query.record, exchange, chosen).step

        return self.process(work)

    def end(self, query: Query, number: int) -> Process:
        """Abort a query, with or without a request to cancel it."""

        def work(store: Store) -> None:
            if number % 2:
                request_cancel(store, query.record.query, "", who="me")
            end_unfinished(store, query.record.query, "failed")

        return self.process(work)

    def read(self, _: Query, __: int) -> Process:
        return self.process(lambda store: Ledger(store).roll_forward() and None)

    def gc(self, _: Query, number: int) -> Process:
        ttl_ms, retention_ms = self.ttl_ms, [None, 0, 900][number % 3]
        return self.process(
            lambda store: collect_garbage(store, ttl_ms=ttl_ms, retention_ms=retention_ms).problems
        )

    def roll_back(self, number: int) -> Process:
        process = self.process(rollback(self.some_step(number)))
        self.may_be_refused.append(process)
        return process

    def claim_hold(self, number: int) -> Process | None:
        name = f"h{number % 2}"
        path = f"_ffq/holds/{name}.json"
        if self.claims.is_asking(path):
            return None
        self.claims.drop(path)
        process = self.process(hold(name, self.some_step(number)))
        self.may_be_refused.append(process)
        self.claims.ask(path, process)
        return process

    def consume(self, number: int) -> Process | None:
        """Start a consumer, or let it read all unread steps, of which none may be missing."""
        name = f"c{number % 2}"
        path = f"_ffq/consumers/{name}.json"
        if self.claims.is_asking(path):
            return None
        if path in self.claims.granted:
            process = self.process(follow(name))
        else:
            process = self.process(begin_stream(name, number % (len(self.judge.log) + 1)))
            self.may_be_refused.append(process)
        self.claims.ask(path, process)
        return process

    def some_step(self, number: int) -> int:
        """Choose a step of the log, or a step that does not exist if the log is empty."""
        return number % max(len(self.judge.log), 1) + 1

    def recent(self, which: int) -> Query:
        """Choose one of the last three queries, so that processes meet."""
        few = list(self.opened.values())[-3:]
        return few[which % len(few)]

    @rule(mode=MODES, driver=DRIVERS, sleeps=st.booleans())
    def open_query(self, mode: str, driver: int, sleeps: bool) -> None:
        """Open a query; its driver may then sleep until the query counts as lost."""
        self.attempt(self.begin(mode, driver), 0).finish()
        if sleeps:
            self.pass_time(leases.UNLEASED_MS)

    @rule(mode=MODES, driver=DRIVERS)
    def write_step(self, mode: str, driver: int) -> None:
        """Write a step without interruption."""
        query = self.begin(mode, driver)
        self.attempt(query, 0).finish()
        self.commit(query, 0).finish()

    @has_queries
    @rule(which=ANY, number=ANY, kind=KINDS, until=STOPS)
    def start(self, which: int, number: int, kind: str, until: str) -> None:
        """Start a process and run it to its end, or to just before an operation of this kind."""
        getattr(self, kind)(self.recent(which), number).advance_to(until)

    @rule(driver=DRIVERS, number=ANY, kind=RIVALS, stop=GC_STOPS, until=RIVAL_STOPS)
    def wake_during_gc(self, driver: int, number: int, kind: str, stop: str, until: str) -> None:
        """Resume a driver that counts as lost while gc is about to fence its query."""
        query = self.begin("append", driver)
        self.attempt(query, 0).finish()
        self.pass_time(leases.UNLEASED_MS)
        gc_run = self.gc(query, number)
        gc_run.advance_to(stop)
        getattr(self, kind)(query, number).advance_to(until)
        gc_run.advance_to("never")

    @precondition(lambda self: self.judge.log)
    @rule(number=ANY, kind=CLAIMS, until=CLAIM_STOPS)
    def claim(self, number: int, kind: str, until: str) -> None:
        """Let a process claim old steps."""
        process = getattr(self, kind)(number)
        if process is not None:
            process.advance_to(until)

    @precondition(lambda self: self.judge.log)
    @rule(replaces=st.integers(0, 3), number=ANY, kind=CLAIMS, stop=EXPIRY_STOPS, until=CLAIM_STOPS)
    def claim_during_gc(self, replaces: int, number: int, kind: str, stop: str, until: str) -> None:
        """Let a process claim old steps while gc deletes the steps that are not needed."""
        for _ in range(replaces):
            self.write_step("replace", 0)
        self.everything_holds()
        gc_run = self.gc(self.recent(0), 1)
        gc_run.advance_to(stop)
        self.claim(number, kind, until)
        gc_run.advance_to("never")

    @rule(number=ANY)
    def let_go(self, number: int) -> None:
        """Release a hold or forget a consumer; in two of three cases do nothing."""
        name = ("h0", "c0", "c1")[number // 3 % 3] if number % 3 == 0 else ""
        path = f"_ffq/{'holds' if name[:1] == 'h' else 'consumers'}/{name}.json"
        if name and not self.claims.is_asking(path):
            self.claims.drop(path)
            store = open_store(self.files)
            (consumers.release if name[0] == "h" else consumers.forget)(store, name)

    @rule(milliseconds=st.sampled_from([1, 600, 1100, leases.UNLEASED_MS]))
    def pass_time(self, milliseconds: int) -> None:
        self.clock.now += milliseconds

    def is_live(self, record: QueryRecord) -> bool:
        """Return whether the lease on storage is in force, computed without the code under test."""
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
        allowed = REFUSALS if process in self.may_be_refused else _ALLOWED
        assert process.error is None or isinstance(process.error, allowed), repr(process.error)
        assert not isinstance(process.result, list) or process.result == [], "gc found problems"

    @invariant()
    def everything_holds(self) -> None:
        for process in self.processes:
            self.check_end(process)
        self.claims.grant_finished()
        self.find_rollbacks()
        known = {**self.opened, **self.rollbacks}
        for query in known.values():
            query.lapsed = query.lapsed or not self.is_live(query.record)
        self.judge.look(self.clock.now, lambda query: known[query].lapsed, self.claims.granted)

    def find_rollbacks(self) -> None:
        """Add the queries that rollbacks have opened."""
        for path in self.files.keys() - self.judge.paths:
            name = path.removeprefix("_ffq/queries/").removesuffix(".json")
            if name.isdecimal() and int(name) not in self.opened:
                record = QueryRecord.decode(self.files[path], path)
                self.rollbacks[record.query] = Query(record)

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
        """Read once and run gc twice, after all processes have died and all leases have expired."""
        self.pass_time(LONG)
        store = open_store(self.files)
        if not self.opened:
            return
        Ledger(store).roll_forward()
        self.everything_holds()
        self.gc_at_rest(store)
        for path in self.claims.on_storage():
            self.claims.drop(path)
            store.delete(path)
        self.gc_at_rest(store)
        if self.judge.log:
            take_snapshot(store, ReadOptions()).parts()

    def gc_at_rest(self, store: Store) -> None:
        first = collect_garbage(store, ttl_ms=self.ttl_ms, retention_ms=0)
        self.everything_holds()
        again = collect_garbage(store, ttl_ms=self.ttl_ms, retention_ms=0)
        self.everything_holds()
        assert first.problems == again.problems == []
        assert (again.files, again.fenced, again.expired) == (0, [], [])
        opened = {*self.opened, *self.rollbacks}
        self.judge.check_at_rest(opened, self.claims.granted, self.claims.on_storage())


def test_no_interleaving_loses_a_committed_row_or_leaves_an_orphan() -> None:
    campaign(GcMachine, examples=150, steps=50, transitions=5_000)


@pytest.mark.soak
def test_no_interleaving_loses_a_committed_row_or_leaves_an_orphan_soak() -> None:
    campaign(GcMachine, examples=3_000, steps=50, transitions=100_000)
