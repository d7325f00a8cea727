"""The rules for writes of a stream's batches, on every kind of storage."""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from conftest import Place
from hypothesis import given, settings
from hypothesis import strategies as st
from layouts import write_options

from ffq_spark import Exchange
from ffq_spark.errors import BadOption, ReplayMismatch, StepGap, StreamOwned
from ffq_spark.exchange.ledger import stream_records
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.maintenance.gc import collect_garbage
from ffq_spark.exchange.write.attempt_writer import write_attempt
from ffq_spark.exchange.write.commit import commit_write
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.exchange.write.prepare import prepare
from ffq_spark.exchange.write.stream_write import Delivery
from ffq_spark.format import paths
from ffq_spark.format.ids import now_ms
from ffq_spark.format.records import Outcome, StepRecord
from ffq_spark.store import Store

OPTIONS = write_options(keys=("k",), partitions=2, stream_id="s")


class Stream:
    """A stream's writer; by default batch b has the rows b*10 to b*10+3."""

    def __init__(self, place: Place, owner: str = "query", stream: str = "s") -> None:
        self.store = Store(place.root, place.storage_options)
        self.exchange = Exchange(place.root, place.storage_options)
        self.owner, self.stream = owner, stream

    def prepare(self, batch: int, rows: list[int] | None = None) -> Callable[..., Any]:
        """Write a run's data, and return a function that commits it."""
        values = [batch * 10 + i for i in range(4)] if rows is None else rows
        data = pa.record_batch({"k": pa.array(values, pa.int64())})
        exchange = prepare(self.store, OPTIONS, data.schema)
        query = Ledger(self.store).begin("append", "app")
        job = WriteJob.of(exchange, query, OPTIONS)
        output = write_attempt(self.store, job, 0, 1, [data])

        def commit(**options: Any) -> StepRecord | None:
            delivery = Delivery(self.stream, self.owner, batch, **options)
            return commit_write(self.store, job, [output], delivery)

        return commit

    def run(self, batch: int, rows: list[int] | None = None, **options: Any) -> StepRecord | None:
        return self.prepare(batch, rows)(**options)

    def rows(self) -> Counter[int]:
        return Counter(self.exchange.read().read_all()["k"].to_pylist())

    def endings(self) -> list[str]:
        """Return the codes of the discarded runs, in order."""
        ledger = Ledger(self.store)
        ended = (ledger.outcome(status.query) for status in self.exchange.status())
        return [o.code for o in ended if o and o.outcome is Outcome.ABORTED]


def of(*numbers: int) -> Counter[int]:
    return Counter(number * 10 + i for number in numbers for i in range(4))


@pytest.fixture
def stream(place: Place) -> Stream:
    return Stream(place)


def test_each_batch_is_a_step_once(stream: Stream) -> None:
    for batch in (0, 1, 1, 0, 2, 1, 3):
        stream.run(batch)
    assert stream.rows() == of(0, 1, 2, 3)
    batches = [step.body.stream for step in stream.exchange.steps()]
    assert [(b.stream, b.epoch, b.batch, b.rows) for b in batches if b] == [
        ("s", 1, batch, 4) for batch in range(4)
    ]
    assert stream.endings() == ["FFQ_DUPLICATE_BATCH"] * 3


def test_a_gap_is_refused_and_the_missing_batch_heals_it(stream: Stream) -> None:
    stream.run(5)
    with pytest.raises(StepGap, match="batch 7 of stream s came without batch 6"):
        stream.run(7)
    assert stream.rows() == of(5)
    for batch in (6, 7):
        stream.run(batch)
    assert stream.rows() == of(5, 6, 7)


def test_a_batch_before_the_first_is_refused(stream: Stream) -> None:
    """The batch is not in the log, so discarding it would lose its rows."""
    stream.run(5)
    with pytest.raises(StepGap, match="batch 4 of stream s is older than its first, 5"):
        stream.run(4, on_mismatch="ignore")
    assert stream.rows() == of(5)


def test_empty_batches_count(stream: Stream) -> None:
    for batch in (0, 1, 1):
        stream.run(batch, [])
    stream.run(2)
    assert [step.body.rows for step in stream.exchange.steps()] == [0, 0, 4]


def test_a_replay_with_other_rows_warns_with_both_digests(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    stream.run(0, [1, 2, 3])
    with caplog.at_level(logging.WARNING):
        stream.run(0, [3, 1, 2])
    assert caplog.records == []
    with caplog.at_level(logging.WARNING):
        stream.run(0, [1, 2, 4], on_mismatch="warn")
    (record,) = caplog.records
    assert "FFQ_REPLAY_MISMATCH" in record.getMessage()
    assert record.getMessage().count("3 rows, sum") == 2
    with pytest.raises(ReplayMismatch):
        stream.run(0, [1, 2])
    caplog.clear()
    stream.run(0, [], on_mismatch="ignore")
    assert caplog.records == []
    assert stream.rows() == Counter([1, 2, 3])
    assert stream.endings() == ["FFQ_DUPLICATE_BATCH", *["FFQ_REPLAY_MISMATCH"] * 3]


def test_a_stream_has_one_owner_until_it_is_taken_over(place: Place) -> None:
    first, second = Stream(place, "first"), Stream(place, "second")
    for batch in range(3):
        first.run(batch)
    with pytest.raises(StreamOwned, match="belongs to first, not to second"):
        second.run(0)
    assert first.rows() == of(0, 1, 2)
    second.run(0, [500], takeover=True)
    second.run(1, [501])
    with pytest.raises(StreamOwned, match="belongs to second"):
        first.run(3)
    # The first owner's batches in the log still count as its own.
    first.run(2)
    assert first.endings()[-1] == "FFQ_DUPLICATE_BATCH"
    with pytest.raises(StepGap, match="batch 4 of stream s came without batch 3"):
        first.run(4, takeover=True)
    # The refused batch changed nothing.
    with pytest.raises(StreamOwned, match="belongs to second"):
        first.run(3)
    first.run(3, takeover=True)
    first.run(4)
    first.run(1, takeover=True)
    assert first.rows() == of(0, 1, 2, 3, 4) + Counter([500, 501])
    owned = [(record.owner, record.first) for record in stream_records.owners(first.store, "s")]
    assert owned == [("first", 0), ("second", 0), ("first", 3)]


def test_a_run_from_before_two_takeovers_does_not_add_its_batch_again(place: Place) -> None:
    """The late run and its repetition both pass all checks, and only one of them becomes a step."""
    first, second, late = Stream(place, "first"), Stream(place, "second"), Stream(place, "first")
    first.run(0)

    class Paused(Store):
        """Runs the other writers just before a commit is decided."""

        def create_once(self, path: str, data: bytes) -> bool:
            if path.endswith(".outcome.json"):
                second.run(0, [500], takeover=True)
                first.run(1, takeover=True)
            return super().create_once(path, data)

    late.store = Paused(place.root, place.storage_options)
    assert late.run(1) is None
    assert first.rows() == of(0, 1) + Counter([500])


def test_streams_and_batch_writers_share_an_exchange(place: Place) -> None:
    one, two = Stream(place, "a", "one"), Stream(place, "b", "two")
    one.run(0)
    two.run(7)
    plain = write_options(keys=("k",), partitions=2)
    write_batches(
        place.root, [], schema=pa.schema([("k", pa.int64())]), options=plain, store=one.store
    )
    two.run(8)
    one.run(1)
    assert one.rows() == of(0, 7, 8, 1)


def test_two_runs_of_one_batch_at_once_give_one_step(place: Place) -> None:
    """All runs have passed every check before one of them commits."""
    for batch in range(3):
        stream = Stream(place)
        commits = [stream.prepare(batch) for _ in range(4)]
        with ThreadPoolExecutor(4) as pool:
            steps = list(pool.map(lambda commit: commit(), commits))
        assert sum(step is not None for step in steps) == 1
    assert stream.rows() == of(0, 1, 2)
    assert [step.body.stream.batch for step in stream.exchange.steps()] == [0, 1, 2]  # type: ignore[union-attr]


def test_the_data_of_a_run_that_lost_its_batch_goes(place: Place) -> None:
    """Such a run is committed but has no step; only the batch's record shows that it lost."""
    stream = Stream(place)
    stream.run(0)

    class Late(Store):
        """Reads no batch record until it tries to create one."""

        def read_optional(self, path: str) -> bytes | None:
            if path == paths.stream_batch("s", 1, 0) and not seen:
                return None
            return super().read_optional(path)

        def create_once(self, path: str, data: bytes) -> bool:
            seen.extend([path] if path == paths.stream_batch("s", 1, 0) else [])
            return super().create_once(path, data)

    seen: list[str] = []
    late = Stream(place)
    late.store = Late(place.root, place.storage_options)
    assert late.run(0) is None and seen
    assert stream.rows() == of(0)
    assert len(queries_with_data(stream.store)) == 2
    report = collect_garbage(stream.store, ttl_ms=0, now=now_ms() + 1000)
    assert report.problems == [] and report.files > 0
    assert len(queries_with_data(stream.store)) == 1
    assert stream.store.list(paths.PENDING) == []
    assert stream.rows() == of(0)
    assert stream.exchange.verify().ok


def queries_with_data(store: Store) -> set[str]:
    return {path.split("/")[1] for path, _ in store.walk(paths.DATA)}


def test_two_runs_at_once_with_other_rows_are_one_success(place: Place) -> None:
    stream = Stream(place)
    stream.run(0)
    commits = [stream.prepare(1, [100 + run]) for run in range(4)]

    def commit(run: int) -> str:
        try:
            return "a step" if commits[run]() else "discarded"
        except ReplayMismatch:
            return "refused"

    with ThreadPoolExecutor(4) as pool:
        ends = list(pool.map(commit, range(4)))
    assert sorted(ends) == ["a step", *["refused"] * 3]
    assert stream.rows() == of(0) + Counter([100 + ends.index("a step")])


@pytest.mark.parametrize(
    ("option", "given"),
    [
        ("batch", {"stream_id": "s"}),
        ("streamId", {"batch": 1}),
        ("streamId", {"stream_run": "a"}),
        ("streamId", {"takeover": True}),
        ("streamRun", {"takeover": True, "stream_id": "s", "batch": 1}),
    ],
    ids=str,
)
def test_options_that_need_another_one_are_refused_without_it(
    root: str, option: str, given: dict[str, Any]
) -> None:
    schema = pa.schema([("k", pa.int64())])
    with pytest.raises(BadOption) as caught:
        write_batches(root, [], schema=schema, options=write_options(**given))
    assert caught.value.option == option
    assert not Store(root).list("")


class Job:
    """A job in one process that writes batches of the stream `s`."""

    def __init__(self, place: Place) -> None:
        self.store = Store(place.root, place.storage_options)
        self.root = place.root

    def run(self, rows: list[int], batch: int = 0, **options: Any) -> StepRecord | None:
        given = write_options(keys=("k",), partitions=2, stream_id="s", batch=batch, **options)
        data = pa.record_batch({"k": pa.array(rows, pa.int64())})
        return write_batches(self.root, [data], options=given, store=self.store)


def test_a_batch_write_with_other_rows_under_its_number_is_an_error(place: Place) -> None:
    """If a job numbers its batches anew, its rows must not be dropped as re-runs."""
    job, stream = Job(place), Stream(place)
    assert job.run([1, 2, 3, 4, 5]) is not None
    assert job.run([5, 4, 3, 2, 1]) is None
    for rows in ([11, 12, 13, 14, 15, 16, 17], []):
        with pytest.raises(ReplayMismatch, match="onMismatch"):
            job.run(rows)
    assert job.run([6], on_mismatch="warn") is None
    assert job.run([6], on_mismatch="ignore") is None
    assert stream.rows() == Counter([1, 2, 3, 4, 5])
    assert stream.endings() == ["FFQ_DUPLICATE_BATCH", *["FFQ_REPLAY_MISMATCH"] * 4]


def test_a_run_owns_its_stream_until_another_takes_it_over(place: Place) -> None:
    job, stream = Job(place), Stream(place)
    job.run([1], stream_run="a")
    assert job.run([1], stream_run="a") is None
    # Equal rows of another run, or of a run without a name, do not count as a re-run.
    for other in ({"stream_run": "b"}, {}):
        with pytest.raises(StreamOwned, match="belongs to a, not to"):
            job.run([1], **other)
    job.run([1], stream_run="b", takeover=True)
    assert job.run([1], stream_run="b", takeover=True) is None
    job.run([2], 1, stream_run="b")
    with pytest.raises(StreamOwned, match="belongs to b, not to a"):
        job.run([3], 1, stream_run="a")
    assert stream.rows() == Counter([1, 1, 2])
    batches = [step.body.stream for step in stream.exchange.steps()]
    assert [(b.epoch, b.batch) for b in batches if b] == [(1, 0), (2, 0), (2, 1)]


def test_batch_writes_without_a_name_can_be_taken_over_from(place: Place) -> None:
    job, stream = Job(place), Stream(place)
    job.run([1])
    job.run([2], stream_run="a", takeover=True)
    with pytest.raises(StreamOwned):
        job.run([3], 1)
    assert stream.rows() == Counter([1, 2])


@settings(max_examples=60)
@given(
    runs=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 5), st.booleans()), max_size=25)
)
def test_any_order_of_runs_gives_each_batch_once(
    runs: list[tuple[str, int, bool]],
) -> None:
    """Runs of two streams, with any number of re-runs, agree with a short model of the rules."""
    place = Place(f"memory://{uuid.uuid4().hex}")
    streams = {name: Stream(place, name, name) for name in "ab"}
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    expected: Counter[int] = Counter()
    for name, batch, empty in runs:
        rows = [] if empty else [batch * 10 + ord(name)]
        gap = name in last and not first[name] <= batch <= last[name] + 1
        fresh = name not in last or batch == last[name] + 1
        if gap:
            with pytest.raises(StepGap):
                streams[name].run(batch, rows, on_mismatch="ignore")
            continue
        assert (streams[name].run(batch, rows, on_mismatch="ignore") is not None) == fresh
        if fresh:
            first.setdefault(name, batch)
            last[name] = batch
            expected.update(rows)
    if last:
        assert streams["a"].rows() == expected
        assert len(streams["a"].exchange.steps()) == sum(last[n] - first[n] + 1 for n in last)
