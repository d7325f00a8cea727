"""Many concurrent processes write, overwrite, publish and read; the log has one serial order."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from conftest import Place
from fault_crashing import CrashingStore, CrashPoint
from fault_processes import Work, at_once, finish, run, start
from fault_rows import (
    ROWS,
    Write,
    batch_of,
    committed_queries,
    exchange_at,
    markers,
    read_log,
    replay,
    rows_of,
    store_at,
    visible,
    write,
)
from layouts import write_options

from ffq_spark.errors import ExchangeMismatch, ExchangeNotFound
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.write.local_write import write_batches

PROCESSES = 8

# The result of one read: the number of rows for each step and tag.
Seen = Counter[tuple[int, int]]


@pytest.fixture(params=["local", "s3"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Return a root on storage that several processes can reach."""
    if request.param == "local":
        return Place(str(tmp_path / "exchange"))
    server = request.getfixturevalue("s3")
    return Place(f"s3://{server.bucket}/{uuid.uuid4().hex}", server.storage_options)


@pytest.fixture
def rounds(shared: Place) -> int:
    return 2 if shared.storage_options else 5


def writer(place: Place, tag: int, mode: str) -> Callable[[Work], int]:
    def work(meet: Work) -> int:
        store = store_at(place)
        store.list("")
        meet()
        return write(place, tag, mode, store).step

    return work


def watch(place: Place, stop: Path) -> Callable[[], list[Seen]]:
    """Return work that reads until `stop` exists, and returns the distinct results in order."""

    def work() -> list[Seen]:
        views: list[Seen] = []
        done = False
        while not done:
            done = stop.exists()
            try:
                table = exchange_at(place).read(metadata_columns=True).read_all()
            except ExchangeNotFound:
                continue
            columns = [table[name].to_pylist() for name in ("_ffq_step", "tag")]
            seen = Counter(zip(*columns, strict=True))
            if not views or seen != views[-1]:
                views.append(seen)
        return views

    return work


def check_prefixes(views: Sequence[Seen], log: Sequence[Write]) -> None:
    """Check that each read saw a whole prefix of the log, and no prefix shrank."""
    newest = 0
    for seen in views:
        assert all(step for step, _ in seen), "rows that are in no step"
        last = max((step for step, _ in seen), default=0)
        assert last >= newest
        newest = last
        tags = replay(log[:last])
        first = last - len(tags) + 1
        assert seen == dict.fromkeys(enumerate(tags, start=first), ROWS)
    assert newest == len(log), "the reader never saw the end"


def watched(place: Place, tmp_path: Path, work: Callable[[], None]) -> None:
    """Do the work while a reader watches, and compare the reader's results with the log."""
    stop = tmp_path / "stop"
    reader = start(watch(place, stop))
    try:
        work()
    finally:
        stop.touch()
        views = finish(reader)
    check_prefixes(views, read_log(place))


def test_appends_at_once_all_become_steps_without_a_gap(
    shared: Place, rounds: int, tmp_path: Path
) -> None:
    def work() -> None:
        for number in range(rounds):
            tags = [number * PROCESSES + i for i in range(PROCESSES)]
            steps = at_once([writer(shared, tag, "append") for tag in tags])
            assert sorted(steps) == [number * PROCESSES + i + 1 for i in range(PROCESSES)]
            log = read_log(shared)
            # Each writer returned the step that holds its rows.
            assert [log[step - 1].tag for step in steps] == tags
            assert visible(shared) == rows_of(range((number + 1) * PROCESSES))

    watched(shared, tmp_path, work)
    assert not markers(store_at(shared))
    assert exchange_at(shared).verify().ok


def test_overwrites_and_appends_at_once_are_one_serial_order(
    shared: Place, rounds: int, tmp_path: Path
) -> None:
    modes = ["append", "replace"] * (PROCESSES // 2)
    written: list[Write] = []

    def work() -> None:
        for number in range(rounds):
            mine = [Write(number * PROCESSES + i, mode) for i, mode in enumerate(modes)]
            at_once([writer(shared, w.tag, w.mode) for w in mine])
            written.extend(mine)

    watched(shared, tmp_path, work)
    log = read_log(shared)
    assert sorted(log, key=lambda w: w.tag) == written
    assert visible(shared) == rows_of(replay(log))
    exchange = exchange_at(shared)
    for number in range(1, len(log) + 1):
        then = exchange.read(as_of_step=number).read_all()
        assert Counter(then["tag"].to_pylist()) == dict.fromkeys(replay(log[:number]), ROWS)


def crash_after_outcome(place: Place, tag: int) -> None:
    """Run a writer that dies after its outcome is created and before its step is."""

    def work() -> None:
        point = CrashPoint(".outcome.json", "after")
        write(place, tag, "append", CrashingStore(place.root, place.storage_options, point))

    assert run(work) is None


def test_processes_that_publish_one_crashed_commit_at_once_make_one_step(
    shared: Place, rounds: int
) -> None:
    def roll_forward(meet: Work) -> int:
        ledger = Ledger(store_at(shared))
        ledger.log.last_number()
        meet()
        ledger.roll_forward()
        return ledger.log.last_number()

    for tag in range(rounds):
        crash_after_outcome(shared, tag)
        assert at_once([roll_forward] * PROCESSES) == [tag + 1] * PROCESSES
        assert read_log(shared) == [Write(t, "append") for t in range(tag + 1)]
        assert not markers(store_at(shared))


def test_crashed_commits_and_new_appends_at_once_all_become_steps(tmp_path: Path) -> None:
    """Writers publish crashed commits concurrently with others that publish the same ones."""
    place = Place(str(tmp_path / "exchange"))
    tags: list[int] = []

    def work() -> None:
        for number in range(3):
            crashed = [number * 100 + i for i in range(3)]
            for tag in crashed:
                crash_after_outcome(place, tag)
            new = [number * 100 + 50 + i for i in range(PROCESSES)]
            at_once([writer(place, tag, "append") for tag in new])
            tags.extend([*crashed, *new])

    watched(place, tmp_path, work)
    assert sorted(w.tag for w in read_log(place)) == tags
    assert len(committed_queries(store_at(place))) == len(tags)


def first_write(place: Place, partitions: int) -> Callable[[Work], int | None]:
    """Return a first write with this number of partitions; it returns None if another won."""

    def work(meet: Work) -> int | None:
        options = write_options(keys=("k",), partitions=partitions)
        meet()
        try:
            write_batches(place.root, [batch_of(partitions)], options=options)
        except ExchangeMismatch:
            return None
        return partitions

    return work


def test_first_writes_that_disagree_at_once_leave_the_one_that_came_first(
    new_root: Callable[[], str],
) -> None:
    for _ in range(5):
        place = Place(new_root())
        results = at_once([first_write(place, n) for n in range(1, PROCESSES + 1)])
        (winner,) = [partitions for partitions in results if partitions is not None]
        assert exchange_at(place).info().partitions == winner
        assert visible(place) == rows_of([winner])
