"""Whatever is committed when a commit begins comes before it in the log, or the commit fails."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from conftest import Place
from fault_storage import Fault, failing
from layouts import write_options
from stepping import Killed

from ffq_spark import Exchange
from ffq_spark.errors import (
    CommittedUnconfirmed,
    ExchangeMismatch,
    FfqError,
    Rows,
    StoreFailed,
    StreamOwned,
)
from ffq_spark.exchange.ledger import ledger
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.exchange.write.prepare import prepare
from ffq_spark.format import paths
from ffq_spark.format.records import StepRecord
from ffq_spark.options import WriteOptions
from ffq_spark.store import Store

OPTIONS = write_options(keys=("k",), partitions=2)
NO_STEP = Fault(1, for_good=True, only="create _ffq/steps/")


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "WAITS", (0.0, 0.0))


def write(
    place: Place,
    *keys: int,
    mode: str = "append",
    options: WriteOptions = OPTIONS,
    store: Store | None = None,
) -> StepRecord | None:
    rows = pa.record_batch({"k": pa.array(keys, pa.int64())})
    store = store or Store(place.root, place.storage_options)
    return write_batches(place.root, [rows], options=options, mode=mode, store=store)


def write_pending(place: Place, *keys: int, **options: Any) -> None:
    """Commit a write whose step cannot be created, as Spark does without noticing."""
    store = failing(place, replace(NO_STEP, seen=[]))
    with pytest.raises(CommittedUnconfirmed):
        write(place, *keys, store=store, **options)


def keys(place: Place) -> list[int]:
    table = Exchange(place.root, place.storage_options).read().read_all()
    return sorted(table["k"].to_pylist())


class Dying(Store):
    """A store whose process ends when it creates a path that starts with `at`."""

    at = paths.STEPS

    def create_once(self, path: str, data: bytes) -> bool:
        if path.startswith(self.at):
            raise Killed
        return super().create_once(path, data)


def test_a_pending_overwrite_comes_before_the_write_after_it(place: Place) -> None:
    write(place, 1)
    write_pending(place, 10, mode="replace")
    write(place, 20)
    assert keys(place) == [10, 20]


def test_a_pending_write_comes_before_the_overwrite_after_it(place: Place) -> None:
    write(place, 1)
    write_pending(place, 2)
    write(place, 3, mode="replace")
    assert keys(place) == [3]


def test_an_overwrite_that_was_killed_comes_before_its_repetition(place: Place) -> None:
    write(place, 1)
    with pytest.raises(Killed):
        write(place, 10, mode="replace", store=Dying(place.root, place.storage_options))
    write(place, 11, mode="replace")
    write(place, 12)
    assert keys(place) == [11, 12]


def test_a_write_behind_one_that_cannot_be_published_fails_for_good(place: Place) -> None:
    write(place, 1)
    write_pending(place, 10, mode="replace")
    with pytest.raises(StoreFailed) as caught:
        write(place, 20, store=failing(place, replace(NO_STEP, seen=[])))
    assert caught.value.rows is Rows.NEVER
    assert keys(place) == [10]


def test_a_first_write_that_was_killed_keeps_its_exchange(place: Place) -> None:
    """It is committed, so a later write with other keys is refused."""
    dying = Dying(place.root, place.storage_options)
    dying.at = paths.EXCHANGE
    with pytest.raises(Killed):
        write(place, 1, store=dying)
    with pytest.raises(ExchangeMismatch) as caught:
        write(place, 2, options=write_options(keys=("k",), partitions=3))
    assert caught.value.rows is Rows.NEVER
    assert keys(place) == [1]


def test_pending_commits_are_published_in_their_order_not_by_their_numbers(place: Place) -> None:
    """Query 9 is committed first; as text, its number comes after that of query 10."""
    write(place, 1)
    store = Store(place.root, place.storage_options)
    late = Dying(place.root, place.storage_options)
    exchange = prepare(store, OPTIONS, pa.schema([("k", pa.int64())]))
    for query, mode in ((9, "replace"), (10, "append")):
        record = Ledger(store).begin(mode, "app", query=query)
        unpublished = Ledger(late)
        unpublished.publish_pending = lambda: 0  # type: ignore[method-assign]
        with pytest.raises(Killed):
            unpublished.commit(record, exchange, [])
    assert Ledger(store).roll_forward() == 2
    steps = Exchange(place.root, place.storage_options).steps()
    assert [step.body.query for step in steps][1:] == [9, 10]


def batch_of(run: str, number: int, **given: Any) -> WriteOptions:
    return replace(OPTIONS, stream_id="s", stream_run=run, batch=number, **given)


def test_batches_of_a_stream_are_published_in_their_order(place: Place) -> None:
    write(place, 0, mode="replace", options=batch_of("a", 0))
    write_pending(place, 1, mode="replace", options=batch_of("a", 1))
    once = failing(place, replace(NO_STEP, for_good=False, seen=[]))
    with pytest.raises(StoreFailed) as caught:
        write(place, 2, mode="replace", options=batch_of("a", 2), store=once)
    assert caught.value.rows is Rows.NEVER
    write(place, 2, mode="replace", options=batch_of("a", 2))
    assert keys(place) == [2]


def test_a_takeover_refuses_the_commit_that_the_old_owner_has_begun(place: Place) -> None:
    write(place, 0, options=batch_of("old", 0))

    class Paused(Store):
        def create_once(self, path: str, data: bytes) -> bool:
            if path.endswith(".outcome.json"):
                write(place, 1, options=batch_of("new", 1, takeover=True))
            return super().create_once(path, data)

    paused = Paused(place.root, place.storage_options)
    with pytest.raises(StreamOwned) as caught:
        write(place, 1, options=batch_of("old", 1), store=paused)
    assert caught.value.rows is Rows.NEVER
    assert keys(place) == [0, 1]


def test_a_write_that_is_never_committed_owns_no_stream(place: Place) -> None:
    refuse_marker = Fault(1, for_good=True, only="create _ffq/pending")
    with pytest.raises(StoreFailed):
        write(place, 1, options=batch_of("a", 17), store=failing(place, refuse_marker))
    write(place, 2, options=batch_of("b", 0))
    refuse_marker = Fault(1, for_good=True, only="create _ffq/pending")
    with pytest.raises(StoreFailed):
        intruder = batch_of("c", 0, takeover=True)
        write(place, 3, options=intruder, store=failing(place, refuse_marker))
    write(place, 4, options=batch_of("b", 1))
    assert keys(place) == [2, 4]


@pytest.mark.parametrize("at", [".owner.json", "00000000000000000001.json"])
def test_a_takeover_that_dies_between_its_claims_is_completed(place: Place, at: str) -> None:
    """It is committed, so the old owner is refused, and the new one's rows count."""
    write(place, 0, options=batch_of("old", 0))

    class DyingClaim(Store):
        def create_once(self, path: str, data: bytes) -> bool:
            if path.startswith(f"{paths.STREAMS}/s/") and path.endswith(at):
                raise Killed
            return super().create_once(path, data)

    dying = DyingClaim(place.root, place.storage_options)
    with pytest.raises(Killed):
        write(place, 5, options=batch_of("new", 1, takeover=True), store=dying)
    with pytest.raises(StreamOwned):
        write(place, 1, options=batch_of("old", 1))
    write(place, 6, options=batch_of("new", 2))
    assert keys(place) == [0, 5, 6]


def test_first_writes_with_columns_in_another_order_cannot_both_count(place: Place) -> None:
    """Their parts are written before either knows of the other."""
    columns = {"a": pa.array([5]), "k": pa.array([5])}

    def rows() -> Any:
        yield pa.record_batch({"k": columns["k"], "a": columns["a"]})
        write_batches(
            place.root,
            [pa.record_batch(columns)],
            options=OPTIONS,
            store=Store(place.root, place.storage_options),
        )

    store = Store(place.root, place.storage_options)
    with pytest.raises(ExchangeMismatch, match="order") as caught:
        write_batches(place.root, rows(), options=OPTIONS, store=store)
    assert caught.value.rows is Rows.NEVER
    exchange = Exchange(place.root, place.storage_options)
    assert exchange.read().read_all().to_pylist() == [{"a": 5, "k": 5}]
    write_batches(place.root, rows(), options=OPTIONS, store=store)
    assert exchange.read().read_all().num_rows == 3


def test_claims_compare_the_order_of_columns_too(place: Place) -> None:
    """Both first writes are past every check when the first of them claims the exchange."""
    other = pa.record_batch({"a": pa.array([5]), "k": pa.array([5])})

    class Paused(Store):
        def create_once(self, path: str, data: bytes) -> bool:
            if path == paths.EXCHANGE:
                store = Store(place.root, place.storage_options)
                unpublished = Ledger.publish_pending
                Ledger.publish_pending = lambda self: 0  # type: ignore[method-assign]
                try:
                    write_batches(place.root, [other], options=OPTIONS, store=store)
                finally:
                    Ledger.publish_pending = unpublished  # type: ignore[method-assign]
            return super().create_once(path, data)

    mine = pa.record_batch({"k": pa.array([7]), "a": pa.array([7])})
    with pytest.raises(ExchangeMismatch, match="order"):
        paused = Paused(place.root, place.storage_options)
        write_batches(place.root, [mine], options=OPTIONS, store=paused)
    exchange = Exchange(place.root, place.storage_options)
    assert exchange.read().read_all().to_pylist() == [{"a": 5, "k": 5}]


def test_an_outcome_that_cannot_be_read_leaves_the_commit_unknown(root: str) -> None:
    """Another process ended the query, and its record is damaged."""

    class Damaged(Store):
        def create_once(self, path: str, data: bytes) -> bool:
            if path.endswith(".outcome.json"):
                super().create_once(path, b"{")
            return super().create_once(path, data)

    with pytest.raises(FfqError) as caught:
        write(Place(root), 1, store=Damaged(root))
    assert caught.value.rows is Rows.UNKNOWN
