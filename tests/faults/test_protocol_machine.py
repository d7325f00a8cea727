"""The commit protocol under random interleavings and crashes, compared with a simple model."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import fault_truth as truth
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from campaigns import CountedMachine, campaign
from fault_rows import table_rows
from fault_stewards import StewardRules
from fault_stream_rules import StreamRules
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from layouts import write_options
from stepping import DECIDING, Killed, Process, new_directory

from ffq_spark import Exchange
from ffq_spark.errors import (
    AlreadyCommitted,
    BadCommit,
    Conflict,
    ExchangeMismatch,
    ExchangeNotFound,
    Fenced,
    FfqError,
    Rows,
)
from ffq_spark.exchange.ledger import ledger
from ffq_spark.exchange.ledger.compatibility import propose
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.ledger.sealing import AttemptOutput
from ffq_spark.exchange.maintenance.rescale import rescale
from ffq_spark.exchange.read.serial_read import read_parts
from ffq_spark.exchange.scan.snapshot import take_snapshot
from ffq_spark.exchange.write.attempt_writer import write_attempt
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.exchange.write.prepare import prepare
from ffq_spark.format.records import Outcome, QueryRecord
from ffq_spark.options import ReadOptions, WriteOptions
from ffq_spark.store import Store

Thing = TypeVar("Thing")

SCHEMA = pa.schema([("k", pa.int64()), ("query", pa.int64()), ("attempt", pa.int64())])
OPTIONS = write_options(keys=("k",), partitions=2)
# Options of a first write that disagrees with the others about the exchange.
OTHER = write_options(keys=("query",), partitions=3)
MAP_TASKS = 2

# Where a process may stop: before any operation, any change, or a change that decides.
STOPS = ["", "change", *DECIDING, "change _ffq/streams", "the end"]
WHICH = st.integers(0, 5)
MODES = st.sampled_from(["append", "replace"])


def pick(things: Sequence[Thing], which: int) -> Thing:
    return things[which % len(things)]


def batch(query: int, map_task: int, attempt: int) -> pa.RecordBatch:
    """Make rows that name their attempt, so that rows of a wrong attempt are detected."""
    keys = range(map_task * 10, map_task * 10 + 3)
    return pa.RecordBatch.from_pylist([{"k": k, "query": query, "attempt": attempt} for k in keys])


def expected(query: int, registered: dict[int, int]) -> Counter[tuple[Any, ...]]:
    return sum((table_rows(batch(query, m, a)) for m, a in registered.items()), Counter())


@dataclass
class Query:
    """The state of a query, as the test expects it."""

    record: QueryRecord
    outputs: dict[int, list[AttemptOutput]] = field(default_factory=dict)


@dataclass
class Running:
    """A process, and the state of the exchange when it started."""

    kind: str
    process: Process
    query: int = 0
    committed: frozenset[Hashable] = frozenset()
    steps: int = 0
    faults: int = 0


class ProtocolMachine(StreamRules, StewardRules, CountedMachine):
    """Writers, twins, rescales, streams, stewards, gc, readers, faults and crashes on one root."""

    def __init__(self) -> None:
        super().__init__()
        self.root = new_directory()
        self.all: list[Running] = []
        self.queries: list[Query] = []
        self.modes: dict[int, str] = {}
        self.attempts = 0
        self.log: list[int] = []
        self.outcomes: dict[int, bytes] = {}
        self.keys: dict[int, tuple[str, ...]] = {}
        self.exchange: tuple[str, ...] | None = None
        self.given_up: set[int] = set()
        self.waits, ledger.WAITS = ledger.WAITS, (0.0, 0.0)
        self.begin_stewards()

    def start(self, kind: str, work: Any, query: int = 0) -> Running:
        # A process must see everything that was committed before it started.
        before = frozenset(self.promised()), len(truth.log(self.root))
        running = Running(kind, Process(self.root, work), query, *before)
        self.all.append(running)
        return running

    @property
    def live(self) -> list[Running]:
        return [running for running in self.all if not running.process.done]

    @property
    def room(self) -> bool:
        """Whether another process may start; a few processes meet more often than many."""
        return len(self.live) < 3

    def new_query(self, mode: str, options: WriteOptions = OPTIONS) -> int:
        number = len(self.modes) + 1
        self.modes[number], self.keys[number] = mode, options.keys
        return number

    def counted(self) -> set[int]:
        """Return the committed queries that match the exchange: they have, or will have, a step."""
        committed = set(truth.promises(self.root))
        exchange = truth.exchange(self.root)
        if exchange is None and len({self.keys[query] for query in committed}) == 1:
            return committed
        return {query for query in committed if self.keys[query] == exchange}

    def promised(self) -> set[Hashable]:
        """Return what the log must hold, now or after a roll forward."""
        promises = truth.promises(self.root)
        counted = {promises[query] for query in self.counted()}
        return counted - truth.unclaimed(self.root) if self.may_take_over else counted

    @precondition(lambda self: len(self.queries) < 3)
    @rule(mode=MODES, twins=st.integers(0, MAP_TASKS))
    def begin(self, mode: str, twins: int) -> None:
        """Begin a query and write all of its map tasks, some of them by two attempts."""
        number = self.new_query(mode)
        self.add_query(Ledger(Store(self.root)).begin(mode, f"i-{number}", query=number), twins)

    def add_query(self, record: QueryRecord, twins: int = 0) -> None:
        self.queries.append(Query(record))
        for map_task in [*range(MAP_TASKS), *range(twins)]:
            self.write_attempt(len(self.queries) - 1, map_task)

    @precondition(lambda self: self.queries and self.attempts < 10)
    @rule(which=WHICH, map_task=st.integers(0, MAP_TASKS - 1))
    def write_attempt(self, which: int, map_task: int) -> None:
        """Write one more complete attempt of a map task, which a commit may register."""
        query = pick(self.queries, which)
        self.attempts += 1
        store, number = Store(self.root), query.record.query
        exchange = propose(OPTIONS, SCHEMA, None, None, self.root)
        job = WriteJob.of(exchange, query.record, OPTIONS)
        rows = [batch(number, map_task, self.attempts)]
        output = write_attempt(store, job, map_task, self.attempts, rows)
        query.outputs.setdefault(map_task, []).append(output)

    @precondition(lambda self: self.queries and self.room)
    @rule(which=WHICH, attempts=st.tuples(WHICH, WHICH))
    def commit(self, which: int, attempts: tuple[int, int]) -> None:
        query = pick(self.queries, which)
        chosen = [pick(outputs, attempts[m]) for m, outputs in query.outputs.items()]

        def work(store: Store) -> int:
            # The attempts were written before any rescale.
            exchange = replace(prepare(store, OPTIONS, SCHEMA), partitions=OPTIONS.partitions)
            return Ledger(store).commit(query.record, exchange, chosen).step

        self.start("commit", work, query.record.query)

    @precondition(lambda self: self.room)
    @rule(mode=MODES, options=st.sampled_from([OPTIONS, OPTIONS, OTHER]))
    def write(self, mode: str, options: WriteOptions) -> None:
        """Start a whole write by one process, from its query to its step."""
        number = self.new_query(mode, options)
        options = replace(options, query=number)

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
    @rule(partitions=st.sampled_from([1, 2, 4, 6]))
    def rescale(self, partitions: int) -> None:
        """Change the number of partitions while queries with other numbers are under way."""
        self.start("rescale", lambda store: rescale(store, partitions))

    def check_rescale(self, running: Running, error: BaseException | None) -> None:
        if not isinstance(error, (Conflict, ExchangeNotFound)):
            self.is_excused(running, error)

    @precondition(lambda self: self.room)
    @rule()
    def roll_forward(self) -> None:
        self.start("roll forward", lambda store: Ledger(store).roll_forward())

    @precondition(lambda self: self.live)
    @rule(which=WHICH, until=st.sampled_from(STOPS), kill=st.booleans())
    def advance(self, which: int, until: str, kill: bool) -> None:
        running = pick(self.live, which)
        running.process.advance_to(until)
        self.check_end(running)
        if kill:
            running.process.kill()

    @precondition(lambda self: self.live)
    @rule(which=WHICH, fault=st.sampled_from(["refused", "lost"]), until=st.sampled_from(STOPS))
    def fail(self, which: int, fault: str, until: str) -> None:
        """Fail one storage operation of a process, which then continues."""
        running = pick(self.live, which)
        running.faults += 1
        running.process.fail_next(fault)
        running.process.advance_to(until)
        self.check_end(running)

    def check_end(self, running: Running) -> None:
        if running.process.done:
            getattr(self, "check_" + running.kind.replace(" ", "_"))(running, running.process.error)

    def check_commit(self, running: Running, error: BaseException | None) -> None:
        """Check that the error of a commit agrees with the rows that readers see."""
        query, counted = running.query, self.counted()
        if error is None:
            self.check_order(running, running.process.result)
            assert truth.log(self.root)[running.process.result - 1] == query
            return
        expected = (Fenced, BadCommit, AlreadyCommitted, ExchangeMismatch)
        assert isinstance(error, FfqError) and (running.faults or isinstance(error, expected)), (
            repr(error)
        )
        if error.rows is Rows.NEVER:
            others = [r for r in self.all if r.query == query and r is not running]
            if not any(other.kind == "commit" for other in others):
                assert query not in counted, repr(error)
            if query not in {other.record.query for other in self.queries}:
                # No other process commits this query, so its rows must never appear.
                self.given_up.add(query)
        elif error.rows is Rows.UNKNOWN:
            # All retries of the deciding call have failed.
            assert running.faults > len(ledger.WAITS), repr(error)
        else:
            assert query in counted, repr(error)

    def check_order(self, running: Running, step: int) -> None:
        """Check that all that was committed when a process began comes before its step."""
        log = truth.log(self.root)[:step]
        assert running.committed <= truth.kept(self.root, log), f"step {step} came too early"

    def check_abort(self, running: Running, error: BaseException | None) -> None:
        if self.is_excused(running, error):
            return
        is_committed = running.process.result.outcome is Outcome.COMMITTED
        assert is_committed == (running.query in truth.committed(self.root))

    def check_roll_forward(self, running: Running, error: BaseException | None) -> None:
        if not self.is_excused(running, error) and not running.faults:
            assert running.committed <= truth.kept(self.root, truth.log(self.root))

    def is_excused(self, running: Running, error: BaseException | None) -> bool:
        """Return whether a process failed, which is allowed only after a storage fault."""
        assert error is None or (running.faults and isinstance(error, FfqError)), repr(error)
        return error is not None

    def check_read(self, running: Running, error: BaseException | None) -> None:
        if isinstance(error, ExchangeNotFound):
            assert running.faults or not running.committed, "committed rows were not found"
            return
        if self.is_excused(running, error):
            return
        steps, table = running.process.result
        rows = table_rows(table)
        log = truth.log(self.root)
        prefixes = [
            n
            for n in range(running.steps, len(log) + 1)
            if (running.faults or running.committed <= truth.kept(self.root, log[:n]))
            and self.visible(log[:n]) == (steps, rows)
        ]
        assert prefixes, f"{steps} steps and {rows} are no state of the log {log}"

    def visible(self, log: list[int]) -> tuple[int, Counter[tuple[Any, ...]]]:
        """Return the number of steps that a reader of this log sees, and their rows."""
        registered = truth.committed(self.root)
        seen: list[int] = []
        for query in log:
            seen = [query] if self.modes[query] == "replace" else [*seen, query]
        return len(seen), sum((expected(self.tag(q), registered[q]) for q in seen), Counter())

    def check_lookups(self, visible: pa.Table) -> None:
        """Check that look-ups find all rows of a key, whatever partitions its steps have."""
        if self.exchange == ("k",):
            found = Exchange(self.root).lookup(1)
            assert table_rows(found) == table_rows(visible.filter(pc.field("k") == 1))

    @invariant()
    def the_log_only_grows_and_holds_each_committed_query_once(self) -> None:
        log = truth.log(self.root)
        assert log[: len(self.log)] == self.log
        assert len(set(log)) == len(log)
        assert set(log) <= set(truth.committed(self.root))
        self.log = log

    @invariant()
    def rows_that_were_given_up_never_count(self) -> None:
        assert not self.given_up & self.counted()

    @invariant()
    def the_exchange_is_a_committed_querys_and_never_changes(self) -> None:
        exchange = truth.exchange(self.root)
        assert self.exchange in (None, exchange)
        assert exchange is None or exchange in {
            self.keys[query] for query in truth.committed(self.root)
        }
        self.exchange = exchange

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
                    running.process.error, (Killed, FfqError)
                )
            self.end_stewards()
            self.read()
            last = self.all[-1]
            last.process.advance_to("the end")
            self.check_end(last)
            assert self.promised() == truth.kept(self.root, truth.log(self.root))
            if last.process.error is None:
                assert Exchange(self.root).verify(steps="all").ok
                self.check_lookups(last.process.result[1])
        finally:
            self.patch.stop()
            ledger.WAITS = self.waits
            shutil.rmtree(self.root)


def test_every_interleaving_keeps_the_protocol() -> None:
    campaign(ProtocolMachine, examples=300, steps=40, transitions=5_000)


@pytest.mark.soak
def test_every_interleaving_keeps_the_protocol_soak() -> None:
    campaign(ProtocolMachine, examples=3_500, steps=40, transitions=100_000)
