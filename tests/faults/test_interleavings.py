"""All interleavings of two processes on one query; the first process dies at any point."""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fault_truth as truth
import pyarrow as pa
import pytest
from conftest import Place
from fault_rows import OPTIONS, batch_of, rows_of, table_rows, write
from stepping import DECIDING, Process, new_directory

from ffq_spark import Exchange
from ffq_spark.errors import AlreadyCommitted, ExchangeNotFound, Fenced
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.ledger.sealing import AttemptOutput
from ffq_spark.exchange.read.serial_read import read_parts
from ffq_spark.exchange.scan.snapshot import take_snapshot
from ffq_spark.exchange.write.attempt_writer import write_attempt
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.exchange.write.prepare import prepare
from ffq_spark.format.records import Outcome, QueryRecord
from ffq_spark.options import ReadOptions
from ffq_spark.store import Store

BEFORE, GOOD, TWIN = 1, 10, 20

Work = Callable[[Store], Any]


@dataclass(frozen=True)
class Scene:
    """A root with one step, and a query with the outputs of two attempts."""

    root: Path
    query: QueryRecord
    outputs: tuple[AttemptOutput, AttemptOutput]

    def commit(self, attempt: int) -> Work:
        def work(store: Store) -> int:
            exchange = prepare(store, OPTIONS, batch_of(GOOD).schema)
            return Ledger(store).commit(self.query, exchange, [self.outputs[attempt]]).step

        return work

    def abort(self, store: Store) -> Outcome:
        return Ledger(store).end(self.query.query, Outcome.ABORTED, "").outcome

    def roll_forward(self, store: Store) -> int:
        return Ledger(store).roll_forward()

    def copies(self) -> Iterator[Path]:
        for number in itertools.count():
            target = self.root.with_name(f"copy-{number}")
            shutil.copytree(self.root, target)
            yield target
            shutil.rmtree(target)


@pytest.fixture
def scene() -> Iterator[Scene]:
    directory = Path(new_directory())
    root = directory / "exchange"
    store = Store(str(root))
    write(Place(store.root), BEFORE)
    query = Ledger(store).begin("append", "initiator")
    exchange = prepare(store, OPTIONS, batch_of(GOOD).schema)
    job = WriteJob.of(exchange, query, OPTIONS)
    first, second = (
        write_attempt(store, job, 0, attempt, [batch_of(tag)])
        for attempt, tag in ((1, GOOD), (2, TWIN))
    )
    yield Scene(root, query, (first, second))
    shutil.rmtree(directory)


def moves(root: Path, work: Work, until: Sequence[str]) -> int:
    """Count the advances that a process needs until it is done."""
    process = Process(str(root), work)
    count = 0
    while not process.done:
        process.advance_to(*until)
        count += 1
    return count


def schedules(dying: int, whole: int) -> Iterator[tuple[bool, ...]]:
    """Yield all orders of one process's moves until its death and another's moves to its end."""
    for done in range(dying + 1):
        for places in itertools.combinations(range(done + whole), done):
            yield tuple(place in places for place in range(done + whole))


def check(scene: Scene, root: Path) -> bool:
    """Check that the query is visible once and whole, or not at all; return whether it is."""
    outcomes = truth.outcomes(str(root))
    table = Exchange(str(root)).read().read_all()
    log, committed = truth.log(str(root)), truth.committed(str(root))
    assert set(log) == set(committed)
    assert len(set(log)) == len(log)
    assert truth.outcomes(str(root)) == outcomes
    attempts = committed.get(scene.query.query)
    tags = {1: [GOOD], 2: [TWIN], None: []}[attempts and attempts[0]]
    assert table_rows(table) == rows_of([BEFORE, *tags])
    assert not list(root.glob("_ffq/pending/*.json")) or attempts is None
    return attempts is not None


@dataclass(frozen=True)
class Pair:
    """A process that dies, one that does not, and the operations at which the latter may stop."""

    dying: Callable[[Scene], Work]
    whole: Callable[[Scene], Work]
    stops: Sequence[str] = DECIDING


PAIRS = {
    # Any change of the commit may follow each read of the process that publishes.
    "a commit that dies, a reader": Pair(lambda s: s.commit(0), lambda s: s.roll_forward, ()),
    "a reader that dies, a commit": Pair(lambda s: s.roll_forward, lambda s: s.commit(0)),
    "a commit that dies, an abort": Pair(lambda s: s.commit(0), lambda s: s.abort),
    "an abort that dies, a commit": Pair(lambda s: s.abort, lambda s: s.commit(0)),
    "a commit that dies, its twin's": Pair(lambda s: s.commit(0), lambda s: s.commit(1)),
    "a commit that dies, the same again": Pair(lambda s: s.commit(0), lambda s: s.commit(0)),
}
# A reader that rolls a commit forward lists, reads twice, creates a step and deletes a marker.
READER = 6


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS.keys())
def test_whatever_the_order_a_query_counts_once_or_not_at_all(scene: Scene, pair: Pair) -> None:
    dying, whole = pair.dying(scene), pair.whole(scene)
    copies = scene.copies()
    first_moves = max(moves(next(copies), dying, DECIDING), 3)
    second_moves = READER if not pair.stops else moves(next(copies), whole, pair.stops)
    counted: Counter[bool] = Counter()
    for schedule in schedules(first_moves, second_moves):
        root = next(copies)
        first, second = Process(str(root), dying), Process(str(root), whole)
        for is_first in schedule:
            first.advance_to(*DECIDING) if is_first else second.advance_to(*pair.stops)
        first.kill()
        with suppress(Fenced, AlreadyCommitted):
            second.finish()
        counted[check(scene, root)] += 1
    copies.close()
    assert counted[True]


def test_a_reader_that_started_before_the_first_write_sees_a_whole_step_or_nothing(
    tmp_path: Path,
) -> None:
    """The reader finds no record at first, and then files that the writer has just created."""

    def first_write(store: Store) -> int:
        return write(Place(store.root), GOOD, store=store).step

    def read(store: Store) -> pa.Table:
        snapshot = take_snapshot(store, ReadOptions())
        batches = read_parts(store, snapshot.parts(), snapshot.exchange.schema)
        return pa.Table.from_batches(batches, snapshot.exchange.schema)

    changes = moves(tmp_path / "dry", first_write, ["change"])
    for done, seen in itertools.product(range(changes + 1), range(5)):
        root = str(tmp_path / f"{done}-{seen}")
        reader, writer = Process(root, read), Process(root, first_write)
        for _ in range(seen):
            reader.advance()
        for _ in range(done):
            writer.advance_to("change")
        try:
            rows = table_rows(reader.finish())
        except ExchangeNotFound:
            rows = Counter()
        finally:
            writer.kill()
        committed = rows_of([GOOD]) if truth.committed(root) else Counter()
        assert rows in (Counter(), committed), f"{seen} reads before {done} changes: {rows}"
