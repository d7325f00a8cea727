"""The commit protocol under any interleaving and any crash, against a simple judge."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import fault_truth as truth
import pyarrow as pa
import pytest
from fault_rows import table_rows
from fault_stepping import DECIDING, Killed, Process, new_directory
from fault_stewards import StewardRules
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ffq_spark import Exchange
from ffq_spark.errors import BadCommit, ExchangeNotFound, Fenced
from ffq_spark.exchange.job import WriteJob
from ffq_spark.exchange.ledger import AttemptOutput, Ledger
from ffq_spark.exchange.reader import read_parts
from ffq_spark.exchange.snapshot import take_snapshot
from ffq_spark.exchange.write import prepare, write_batches
from ffq_spark.exchange.writer import write_attempt
from ffq_spark.format.records import Outcome, QueryRecord
from ffq_spark.options import ReadOptions, WriteOptions
from ffq_spark.store import Store

Thing = TypeVar("Thing")

SCHEMA = pa.schema([("k", pa.int64()), ("query", pa.int64()), ("attempt", pa.int64())])
OPTIONS = WriteOptions(keys=("k",), partitions=2)
MAP_TASKS = 2

# Where a process may be left: before any operation, before a change, and before those that decide.
STOPS = ["", "change", *DECIDING, "the end"]
WHICH = st.integers(0, 5)
MODES = st.sampled_from(["append", "replace"])


def pick(things: Sequence[Thing], which: int) -> Thing:
    return things[which % len(things)]


def batch(query: int, map_task: int, attempt: int) -> pa.RecordBatch:
    """Rows that name their attempt, so that those of a wrong one are seen."""
    keys = range(map_task * 10, map_task * 10 + 3)
    return pa.RecordBatch.from_pylist([{"k": k, "query": query, "attempt": attempt} for k in keys])


def expected(query: int, registered: dict[int, int]) -> Counter[tuple[Any, ...]]:
    return sum((table_rows(batch(query, m, a)) for m, a in registered.items()), Counter())


@dataclass
class Query:
    """A query as the test knows it."""

    record: QueryRecord
    outputs: dict[int, list[AttemptOutput]] = field(default_factory=dict)


@dataclass
class Running:
    """A process, and what was true when it started."""

    kind: str
    process: Process
    query: int = 0
    committed: frozenset[int] = frozenset()
    steps: int = 0


class ProtocolMachine(StewardRules, RuleBasedStateMachine):
    """Writers, twins, aborts, stewards, collectors, readers and crashes on one exchange."""

    def __init__(self) -> None:
        super().__init__()
        self.root = new_directory()
        self.all: list[Running] = []
        self.queries: list[Query] = []
        self.modes: dict[int, str] = {}
        self.attempts = 0
        self.log: list[int] = []
        self.outcomes: dict[int, bytes] = {}
        self.begin_stewards()

    def start(self, kind: str, work: Any, query: int = 0) -> Running:
        # What was committed before a process started must not be missed by it.
        before = frozenset(truth.committed(self.root)), len(truth.log(self.root))
        running = Running(kind, Process(self.root, work), query, *before)
        self.all.append(running)
        return running

    @property
    def live(self) -> list[Running]:
        return [running for running in self.all if not running.process.done]

    @property
    def room(self) -> bool:
        """Few processes at a time meet more often."""
        return len(self.live) < 3

    def new_query(self, mode: str) -> int:
        self.modes[len(self.modes) + 1] = mode
        return len(self.modes)

    @precondition(lambda self: len(self.queries) < 3)
    @rule(mode=MODES, twins=st.integers(0, MAP_TASKS))
    def begin(self, mode: str, twins: int) -> None:
        """A query whose map tasks have all been written, some of them by two attempts."""
        number = self.new_query(mode)
        self.add_query(Ledger(Store(self.root)).begin(mode, f"i-{number}", query=number), twins)

    def add_query(self, record: QueryRecord, twins: int = 0) -> None:
        self.queries.append(Query(record))
        for map_task in [*range(MAP_TASKS), *range(twins)]:
            self.write_attempt(len(self.queries) - 1, map_task)

    @precondition(lambda self: self.queries and self.attempts < 10)
    @rule(which=WHICH, map_task=st.integers(0, MAP_TASKS - 1))
    def write_attempt(self, which: int, map_task: int) -> None:
        """One more attempt of a task, at any time: complete, and it may count or not."""
        query = pick(self.queries, which)
        self.attempts += 1
        store, number = Store(self.root), query.record.query
        job = WriteJob.of(prepare(store, OPTIONS, SCHEMA), query.record, OPTIONS)
        rows = [batch(number, map_task, self.attempts)]
        output = write_attempt(store, job, map_task, self.attempts, rows)
        query.outputs.setdefault(map_task, []).append(output)

    @precondition(lambda self: self.queries and self.room)
    @rule(which=WHICH, attempts=st.tuples(WHICH, WHICH))
    def commit(self, which: int, attempts: tuple[int, int]) -> None:
        query = pick(self.queries, which)
        chosen = [pick(outputs, attempts[m]) for m, outputs in query.outputs.items()]

        def work(store: Store) -> int:
            exchange = prepare(store, OPTIONS, SCHEMA)
            return Ledger(store).commit(query.record, exchange, chosen).step

        self.start("commit", work, query.record.query)

    @precondition(lambda self: self.room)
    @rule(mode=MODES)
    def write(self, mode: str) -> None:
        """A whole write by one process, from its query to its step."""
        number = self.new_query(mode)
        options = replace(OPTIONS, query=number)

        def work(store: Store) -> int:
            rows = [batch(number, 0, 1)]
            return write_batches(self.root, rows, options=options, mode=mode, store=store).step

        self.start("commit", work, number)

    @precondition(lambda self: self.queries and self.room)
    @rule(which=WHICH)
    def abort(self, which: int) -> None:
        number = pick(self.queries, which).record.query
        self.start("abort", lambda store: Ledger(store).end(number, Outcome.ABORTED, ""), number)

    @precondition(lambda self: self.room)
    @rule()
    def read(self) -> None:
        def work(store: Store) -> tuple[int, pa.Table]:
            snapshot = take_snapshot(store, ReadOptions())
            batches = read_parts(store, snapshot.parts(), snapshot.exchange.schema)
            return len(snapshot.steps), pa.Table.from_batches(batches, snapshot.exchange.schema)

        self.start("read", work)

    @precondition(lambda self: self.room)
    @rule()
    def roll_forward(self) -> None:
        self.start("roll forward", lambda store: Ledger(store).roll_forward())

    @precondition(lambda self: self.live)
    @rule(which=WHICH, until=st.sampled_from(STOPS), kill=st.booleans())
    def advance(self, which: int, until: str, kill: bool) -> None:
        running = pick(self.live, which)
        running.process.advance(until)
        self.check_end(running)
        if kill:
            running.process.kill()

    def check_end(self, running: Running) -> None:
        if running.process.done:
            getattr(self, "check_" + running.kind.replace(" ", "_"))(running, running.process.error)

    def check_commit(self, running: Running, error: BaseException | None) -> None:
        query, committed = running.query, truth.committed(self.root)
        if error is None:
            assert truth.log(self.root)[running.process.result - 1] == query
        else:
            assert isinstance(error, (Fenced, BadCommit)), repr(error)
            others = [r for r in self.all if r.query == query and r is not running]
            assert query not in committed or any(other.kind == "commit" for other in others)

    def check_abort(self, running: Running, error: BaseException | None) -> None:
        assert error is None, repr(error)
        is_committed = running.process.result.outcome is Outcome.COMMITTED
        assert is_committed == (running.query in truth.committed(self.root))

    def check_roll_forward(self, running: Running, error: BaseException | None) -> None:
        assert error is None, repr(error)
        assert running.committed <= set(truth.log(self.root))

    def check_read(self, running: Running, error: BaseException | None) -> None:
        if error is not None:
            assert isinstance(error, ExchangeNotFound), repr(error)
            assert not running.committed, "committed rows were not found"
            return
        steps, table = running.process.result
        rows = table_rows(table)
        log = truth.log(self.root)
        prefixes = [
            n
            for n in range(running.steps, len(log) + 1)
            if running.committed <= set(log[:n]) and self.visible(log[:n]) == (steps, rows)
        ]
        assert prefixes, f"{steps} steps and {rows} are no state of the log {log}"

    def visible(self, log: list[int]) -> tuple[int, Counter[tuple[Any, ...]]]:
        """How many steps a reader sees, and their rows, when this is the log."""
        registered = truth.committed(self.root)
        seen: list[int] = []
        for query in log:
            seen = [query] if self.modes[query] == "replace" else [*seen, query]
        return len(seen), sum((expected(q, registered[q]) for q in seen), Counter())

    @invariant()
    def the_log_only_grows_and_holds_each_committed_query_once(self) -> None:
        log = truth.log(self.root)
        assert log[: len(self.log)] == self.log
        assert len(set(log)) == len(log)
        assert set(log) <= set(truth.committed(self.root))
        self.log = log

    @invariant()
    def outcomes_never_change(self) -> None:
        outcomes = truth.outcomes(self.root)
        assert self.outcomes.items() <= outcomes.items()
        self.outcomes = outcomes

    def teardown(self) -> None:
        try:
            for running in self.all:
                running.process.kill()
                assert running.process.error is None or isinstance(
                    running.process.error, (Killed, Fenced, BadCommit, ExchangeNotFound)
                )
            self.end_stewards()
            self.read()
            last = self.all[-1]
            last.process.advance("the end")
            self.check_end(last)
            assert set(truth.log(self.root)) == set(truth.committed(self.root))
            if last.process.error is None:
                assert Exchange(self.root).verify(steps="all").ok
        finally:
            shutil.rmtree(self.root)


def campaign(examples: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


class TestProtocol(ProtocolMachine.TestCase):
    settings = campaign(300)


@pytest.mark.soak
class TestProtocolSoak(ProtocolMachine.TestCase):
    settings = campaign(3000)
