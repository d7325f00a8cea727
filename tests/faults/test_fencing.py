"""One outcome ends a query: the first process to create it decides, and it never changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Place
from fault_crashing import CrashingStore, CrashPoint
from fault_processes import Work, at_once, run, start, stop
from fault_rows import (
    OPTIONS,
    batch_of,
    committed_queries,
    markers,
    rows_of,
    store_at,
    visible,
    write,
)
from stepping import Process

from ffq_spark.errors import AlreadyCommitted, BadCommit, ExchangeMismatch, Fenced, Rows
from ffq_spark.exchange.attempts.states import attempt_states
from ffq_spark.exchange.attempts.status import QueryState, query_status
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.ledger.sealing import AttemptOutput
from ffq_spark.exchange.maintenance.gc import collect_garbage
from ffq_spark.exchange.write.attempt_writer import write_attempt
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.exchange.write.prepare import prepare
from ffq_spark.format import paths
from ffq_spark.format.ids import now_ms
from ffq_spark.format.paths import AttemptId
from ffq_spark.format.records import Outcome, QueryRecord
from ffq_spark.options import WriteOptions

BEFORE, NEW = 1, 2


class Prepared:
    """A query whose rows are written, ready for its commit or another end."""

    def __init__(self, place: Place) -> None:
        self.place = place
        store = store_at(place)
        write(place, BEFORE)
        self.query: QueryRecord = Ledger(store).begin("append", "initiator")
        self.output = self.attempt(1)

    def attempt(self, number: int) -> AttemptOutput:
        store = store_at(self.place)
        job = WriteJob.of(self._exchange(), self.query, OPTIONS)
        return write_attempt(store, job, 0, number, [batch_of(NEW)])

    def _exchange(self) -> object:
        return prepare(store_at(self.place), OPTIONS, batch_of(NEW).schema)

    def commit(self, *outputs: AttemptOutput) -> int:
        ledger = Ledger(store_at(self.place))
        return ledger.commit(self.query, self._exchange(), outputs or [self.output]).step

    def end(self, outcome: Outcome) -> Outcome:
        return Ledger(store_at(self.place)).end(self.query.query, outcome, "a test").outcome


@pytest.fixture
def prepared(place: Place) -> Prepared:
    return Prepared(place)


ENDS = [Outcome.ABORTED, Outcome.CANCELED, Outcome.LOST]


@pytest.mark.parametrize("outcome", ENDS)
def test_a_commit_after_another_end_is_fenced_and_shows_nothing(
    prepared: Prepared, outcome: Outcome
) -> None:
    assert prepared.end(outcome) is outcome
    with pytest.raises(Fenced, match=outcome.value):
        prepared.commit()
    assert visible(prepared.place) == rows_of([BEFORE])
    assert not markers(store_at(prepared.place))
    with pytest.raises(Fenced):
        prepared.commit()
    assert visible(prepared.place) == rows_of([BEFORE])


@pytest.mark.parametrize("outcome", ENDS)
def test_an_end_after_the_commit_changes_nothing(prepared: Prepared, outcome: Outcome) -> None:
    assert prepared.commit() == 2
    assert prepared.end(outcome) is Outcome.COMMITTED
    assert visible(prepared.place) == rows_of([BEFORE, NEW])


def test_a_second_commit_of_a_query_adds_nothing_and_says_that_the_first_counts(
    prepared: Prepared,
) -> None:
    prepared.commit()
    with pytest.raises(AlreadyCommitted):
        prepared.commit()
    with pytest.raises(AlreadyCommitted):
        prepared.commit(prepared.attempt(2))
    assert visible(prepared.place) == rows_of([BEFORE, NEW])


OTHER = replace(OPTIONS, keys=("tag",), partitions=5)


def first_write(place: Place, options: WriteOptions = OPTIONS) -> tuple[WriteJob, AttemptOutput]:
    """Begin a query on an empty root and write its rows, ready for its end."""
    store = store_at(place)
    query = Ledger(store).begin("append", "initiator")
    job = WriteJob.of(prepare(store, options, batch_of(NEW).schema), query, options)
    return job, write_attempt(store, job, 0, 1, [batch_of(NEW)])


@pytest.mark.parametrize("outcome", ENDS)
def test_a_first_write_that_was_fenced_decides_nothing_about_the_exchange(
    place: Place, outcome: Outcome
) -> None:
    job, output = first_write(place)
    ledger = Ledger(store_at(place))
    ledger.end(job.query.query, outcome, "a test")
    with pytest.raises(Fenced):
        ledger.commit(job.query, job.exchange, [output])
    assert visible(place) is None
    write_batches(place.root, [batch_of(BEFORE)], options=OTHER, store=store_at(place))
    assert visible(place) == rows_of([BEFORE])
    assert ledger.exchange() is not None and ledger.exchange().partitions == 5


def test_of_two_first_writes_that_disagree_one_counts_and_the_other_knows(tmp_path: Path) -> None:
    """Both queries are committed before either claims the exchange; the first claim decides."""
    place = Place(str(tmp_path / "exchange"))
    jobs = [first_write(place), first_write(place, OTHER)]
    first, second = (
        Process(
            place.root,
            lambda store, job=job, output=output: Ledger(store).commit(
                job.query, job.exchange, [output]
            ),
        )
        for job, output in jobs
    )
    for decision in (".outcome.json", f"change {paths.EXCHANGE}"):
        for process in (first, second):
            process.advance_to(decision)
    assert second.finish().step == 1
    with pytest.raises(ExchangeMismatch) as refused:
        first.finish()
    assert refused.value.rows is Rows.NEVER
    store = store_at(place)
    assert Ledger(store).exchange() == jobs[1][0].exchange
    assert visible(place) == rows_of([NEW])
    assert not markers(store)
    lost = jobs[0][0].query.query
    assert query_status(store, lost).state is QueryState.FAILED
    assert {state.state for state in attempt_states(store, lost)} == {"stale"}
    collect_garbage(store, ttl_ms=0, now=now_ms() + 1000)
    assert not list(attempt_states(store, lost))
    assert visible(place) == rows_of([NEW])


def test_an_end_by_another_process_fences_the_commit(tmp_path: Path) -> None:
    prepared = Prepared(Place(str(tmp_path / "exchange")))
    assert run(lambda: prepared.end(Outcome.LOST)) is Outcome.LOST
    with pytest.raises(Fenced):
        prepared.commit()
    assert visible(prepared.place) == rows_of([BEFORE])


def test_messages_that_are_not_one_attempt_for_each_map_task_commit_nothing(
    prepared: Prepared,
) -> None:
    twin = prepared.attempt(2)
    stray = AttemptOutput(AttemptId(7, 0, 0, 1), prepared.output.manifest)
    for outputs in ([prepared.output, twin], [stray]):
        with pytest.raises(BadCommit):
            prepared.commit(*outputs)
    assert visible(prepared.place) == rows_of([BEFORE])
    assert prepared.commit() == 2


def test_commits_and_aborts_at_once_agree_on_one_outcome(new_root: Callable[[], str]) -> None:
    """Processes race to end one query; all of them, and readers, report the same outcome."""
    ended: Counter[str] = Counter()
    for _ in range(20):
        prepared = Prepared(Place(new_root()))

        def commit(meet: Work, prepared: Prepared = prepared) -> str:
            meet()
            try:
                prepared.commit()
            except Fenced:
                return "fenced"
            except AlreadyCommitted:
                return "late"
            return "committed"

        def abort(meet: Work, prepared: Prepared = prepared) -> str:
            meet()
            return prepared.end(Outcome.ABORTED).value

        first, second, *aborts = at_once([commit, commit, abort, abort])
        committed = "committed" in (first, second)
        assert [first, second].count("committed") <= 1
        assert committed == ("late" in (first, second))
        assert aborts == (["COMMITTED"] * 2 if committed else ["ABORTED"] * 2)
        assert visible(prepared.place) == rows_of([BEFORE, NEW] if committed else [BEFORE])
        ended[aborts[0]] += 1
    assert sum(ended.values()) == 20


def test_a_crashed_commit_is_found_while_other_markers_come_and_go(tmp_path: Path) -> None:
    """A marker that disappears during a listing hides no other marker."""
    place = Place(str(tmp_path / "exchange"))
    assert run(lambda: crash_after_outcome(place)) is None
    (crashed,) = committed_queries(store_at(place))
    others = start(lambda: come_and_go(place))
    try:
        for _ in range(3000):
            assert crashed in markers(store_at(place))
        assert visible(place) == rows_of([NEW])
    finally:
        stop(others)


def crash_after_outcome(place: Place) -> None:
    point = CrashPoint(".outcome.json", "after")
    write(place, NEW, store=CrashingStore(place.root, None, point))


def come_and_go(place: Place) -> None:
    store, others = store_at(place), [paths.pending(number) for number in range(1, 20)]
    while True:
        for path in others:
            store.create_once(path, b"{}\n")
        for path in others:
            store.delete(path)
