"""A cut shows the exchanges that one stream writes as of the same batch."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from conftest import Place
from hypothesis import given, settings
from hypothesis import strategies as st
from layouts import write_options

import ffq_spark as ffq
from ffq_spark import Exchange
from ffq_spark.errors import BadOption, NoCommonVersion, StepExpired
from ffq_spark.exchange.cut import Held, _newest_common
from ffq_spark.exchange.ledger import consumers
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.store import Store


class Fed:
    """An exchange whose batches contain their own number."""

    def __init__(self, place: Place | None = None) -> None:
        self.place = place or Place(f"memory://{uuid.uuid4().hex}")
        self.exchange = Exchange(self.place.root, self.place.storage_options)

    def write(
        self, *batches: int | None, stream: str = "s", mode: str = "append", run: str = ""
    ) -> Fed:
        """Write batches of a stream; None stands for a write without a stream."""
        for number in batches:
            given: dict[str, Any] = {} if number is None else {"stream_id": stream, "batch": number}
            if run:
                given |= {"stream_run": run, "takeover": True}
            options = write_options(partitions=1, **given)
            rows = pa.record_batch({"k": pa.array([-1 if number is None else number], pa.int64())})
            write_batches(
                self.place.root,
                [rows],
                options=options,
                mode=mode,
                storage_options=self.place.storage_options,
            )
        return self


def values(readers: Sequence[pa.RecordBatchReader]) -> list[list[int]]:
    return [sorted(reader.read_all()["k"].to_pylist()) for reader in readers]


def test_the_slowest_decides_and_all_are_read_as_of_its_batch(place: Place) -> None:
    ahead, behind = Fed(place).write(0, 1, None, 2), Fed().write(0, 1)
    cut = ffq.cut([ahead.exchange, behind.place.root])
    assert (cut.stream, cut.epoch, cut.batch) == ("s", 1, 1)
    assert [(exchange.root, step) for exchange, step in cut.steps] == [
        (ahead.place.root, 2),
        (behind.place.root, 2),
    ]
    ahead.write(3)
    assert values(cut.read()) == [[0, 1], [0, 1]]
    assert [reader.schema.names for reader in cut.read(columns=["k"])] == [["k"], ["k"]]
    behind.write(2)
    assert values(ffq.cut([ahead.exchange, behind.exchange]).read()) == [[-1, 0, 1, 2], [0, 1, 2]]


def test_one_exchange_has_a_cut_of_its_own() -> None:
    assert ffq.cut([Fed().write(0, 1).exchange]).batch == 1
    with pytest.raises(BadOption, match="at least one"):
        ffq.cut([])


def test_where_nothing_is_common_the_error_says_so() -> None:
    old, new = Fed().write(0, 1), Fed().write(2, 3)
    for exchanges, text in [
        ([old, new], "no batch of stream s is in all of"),
        ([old, Fed().write(0, stream="other")], "no stream feeds all of"),
        ([old, Fed().write(None)], "no stream feeds all of"),
        ([old, Fed()], "no stream feeds all of"),
    ]:
        with pytest.raises(NoCommonVersion, match=text) as caught:
            ffq.cut([fed.exchange for fed in exchanges])
        assert caught.value.code == "FFQ_NO_COMMON_VERSION"
        assert old.place.root in str(caught.value)


def test_of_two_common_streams_one_must_be_named() -> None:
    both = [Fed().write(0, 1).write(0, 1, 2, stream="t").exchange for _ in range(2)]
    with pytest.raises(BadOption, match="choose one: s, t") as caught:
        ffq.cut(both)
    assert caught.value.option == "stream"
    assert ffq.cut(both, stream="s").batch == 1
    assert ffq.cut(both, stream="t").batch == 2
    one = Fed().write(0, stream="t").exchange
    assert ffq.cut([*both, one]).stream == "t"


def test_batches_that_replace_each_other_are_still_found() -> None:
    ahead = Fed().write(0, 1, 2, 3, mode="replace")
    behind = Fed().write(0, 1)
    assert values(ffq.cut([ahead.exchange, behind.exchange]).read()) == [[1], [0, 1]]


def test_what_was_rolled_back_is_not_held_any_more() -> None:
    first, second = Fed().write(0, 1, 2, 3), Fed().write(0, 1, 2, 3)
    first.exchange.rollback(2)
    cut = ffq.cut([first.exchange, second.exchange])
    assert cut.batch == 1
    assert values(cut.read()) == [[0, 1], [0, 1]]
    first.write(4)
    second.write(4)
    assert values(ffq.cut([first.exchange, second.exchange]).read()) == [[0, 1, 4], [0, 1, 2, 3, 4]]


def test_a_batch_of_another_owner_is_another_batch() -> None:
    """Each exchange counts epochs by itself: its second owner may be the first of another."""
    old, new = Fed().write(0, 1, run="a").write(0, 1, run="b"), Fed().write(0, run="b")
    assert values(ffq.cut([old.exchange, new.exchange]).read()) == [[0, 0, 1], [0]]
    old.write(2, run="a")
    new.write(1, run="b")
    assert values(ffq.cut([old.exchange, new.exchange]).read()) == [[0, 0, 1, 1], [0, 1]]
    with pytest.raises(NoCommonVersion):
        ffq.cut([Fed().write(0, run="a").exchange, new.exchange])


def test_a_cut_whose_step_has_expired_says_so() -> None:
    ahead, behind = Fed().write(0, 1, 2, 3, mode="replace"), Fed().write(0)
    ahead.exchange.gc(retention=0)
    with pytest.raises(StepExpired):
        ffq.cut([ahead.exchange, behind.exchange])


def test_a_cut_that_shows_an_expired_step_says_so() -> None:
    fed = Fed().write(0).write(None, mode="replace")
    fed.exchange.rollback(1)
    fed.write(1)
    consumers.record_progress(Store(fed.place.root), "slow", 3)
    fed.write(None, None, None, mode="replace")
    assert fed.exchange.gc(ttl=0, retention=0).expired == [1, 2, 3]
    with pytest.raises(StepExpired, match="step 1"):
        ffq.cut([fed.exchange])


def test_a_commit_that_was_not_published_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    fed = Fed().write(0)
    with monkeypatch.context() as patched:
        patched.setattr("ffq_spark.exchange.ledger.step_log.StepLog.publish", die)
        with pytest.raises(KeyboardInterrupt):
            fed.write(1)
    assert ffq.cut([fed.exchange]).batch == 1


def test_a_cut_near_the_head_reads_only_the_end_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead, behind = Fed().write(*range(70)), Fed().write(*range(68))
    read: list[str] = []
    original = Store.read

    def counted(self: Store, path: str) -> bytes:
        read.append(path)
        return original(self, path)

    monkeypatch.setattr(Store, "read", counted)
    assert ffq.cut([ahead.exchange, behind.exchange]).batch == 67
    assert 0 < len(read) < 80
    assert min(int(path[-25:-5]) for path in read if "/steps/" in path) > 50


# The batches of one stream in order; owner "a" took the stream back from "b".
WRITTEN = [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("a", 2), ("a", 3)]


@settings(max_examples=300)
@given(st.lists(st.sets(st.sampled_from(WRITTEN)), min_size=1, max_size=4))
def test_the_cut_is_the_newest_batch_of_all(held: list[set[tuple[str, int]]]) -> None:
    walks = [
        [
            Held(*batch, epoch=1, step=n)
            for n, batch in enumerate(filter(batches.__contains__, WRITTEN))
        ]
        for batches in held
    ]
    left = [iter(walk[::-1]) for walk in walks]
    common = _newest_common(left)
    newest = max(set.intersection(*held), key=WRITTEN.index, default=None)
    if newest is None:
        assert common is None
        return
    assert common == [next(entry for entry in walk if entry[:2] == newest) for walk in walks]
    # No exchange was searched further back than the one with the longest necessary search.
    depth = max(len(walk) - entry.step for walk, entry in zip(walks, common, strict=True))
    assert all(len(walk) - len(list(rest)) <= depth for walk, rest in zip(walks, left, strict=True))


@settings(max_examples=8)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5)), min_size=1, max_size=3))
def test_other_writes_in_between_change_nothing(ranges: list[tuple[int, int]]) -> None:
    held = [range(first, first + count) for first, count in ranges]
    exchanges = []
    for batches in held:
        fed = Fed().write(None)
        for batch in batches:
            fed.write(batch).write(None).write(batch, stream="other")
        exchanges.append(fed.exchange)
    newest = max(set.intersection(*map(set, held)), default=None)
    if newest is None:
        with pytest.raises(NoCommonVersion):
            ffq.cut(exchanges, stream="s")
        return
    cut = ffq.cut(exchanges, stream="s")
    assert cut.batch == newest
    assert [step for _, step in cut.steps] == [2 + 3 * (newest - b[0]) for b in held]
