"""A stream has one owner at a time; a takeover seals the epoch of the owner before it."""

from __future__ import annotations

import uuid

import pytest

from ffq_spark.errors import CorruptRecord, StepGap, StreamOwned
from ffq_spark.exchange.ledger import stream_records
from ffq_spark.format import paths
from ffq_spark.format.records import SEAL, BatchRecord, OwnerRecord, StreamBatch
from ffq_spark.store import Store


@pytest.fixture
def store() -> Store:
    return Store(f"memory://{uuid.uuid4().hex}")


def batch(epoch: int, number: int) -> StreamBatch:
    return StreamBatch("nightly", epoch, number, 3, 1, 2)


def epoch(number: int, owner: str, first: int) -> OwnerRecord:
    return OwnerRecord("nightly", number, owner, first, at_ms=0)


def test_the_first_to_begin_an_epoch_owns_it(store: Store) -> None:
    for _ in range(2):
        stream_records.begin_epoch(store, epoch(1, "a", 5))
    with pytest.raises(StreamOwned, match="belongs to a, not to b"):
        stream_records.begin_epoch(store, epoch(1, "b", 5))
    with pytest.raises(StepGap, match="batch 6 of stream nightly came without batch 5"):
        stream_records.begin_epoch(store, epoch(1, "a", 6))
    assert stream_records.owners(store, "nightly") == [epoch(1, "a", 5)]


def test_a_new_epoch_seals_the_next_batch_of_the_one_before(store: Store) -> None:
    stream_records.begin_epoch(store, epoch(1, "a", 5))
    for number in (5, 6):
        stream_records.claim(store, number, batch(1, number))
    for _ in range(2):
        stream_records.begin_epoch(store, epoch(2, "b", 0))
    assert stream_records.claim(store, 70, batch(1, 7)) == SEAL
    assert stream_records.read(store, "nightly", 1, 8) is None
    # An epoch without a batch is sealed at its first one.
    stream_records.begin_epoch(store, epoch(3, "a", 7))
    assert stream_records.read(store, "nightly", 2, 0) == SEAL
    owners = [record.owner for record in stream_records.owners(store, "nightly")]
    assert owners == ["a", "b", "a"]


def test_a_claim_that_comes_before_the_seal_counts(store: Store) -> None:
    """The previous owner claims its batch while a takeover looks for the place of its seal."""

    class Racing(Store):
        def create_once(self, path: str, data: bytes) -> bool:
            if path == paths.stream_batch("nightly", 1, 0):
                stream_records.claim(store, 7, batch(1, 0))
            return super().create_once(path, data)

    stream_records.begin_epoch(store, epoch(1, "a", 0))
    stream_records.begin_epoch(Racing(store.root), epoch(2, "b", 0))
    records = [stream_records.read(store, "nightly", 1, number) for number in (0, 1, 2)]
    assert records == [BatchRecord(7, 3, 1, 2), SEAL, None]


def test_an_epoch_needs_the_one_before_it(store: Store) -> None:
    with pytest.raises(CorruptRecord, match="the owner's record is missing"):
        stream_records.begin_epoch(store, epoch(2, "a", 0))


def test_a_batch_is_claimed_by_one_query(store: Store) -> None:
    queries = [(7, batch(1, 0)), (7, batch(1, 0)), (8, batch(1, 0)), (8, batch(2, 0))]
    assert [stream_records.claim(store, *claim).query for claim in queries] == [7, 7, 7, 8]


def test_a_batch_is_found_by_its_owner_in_any_of_its_epochs(store: Store) -> None:
    for number, owner in enumerate(("a", "b", "a"), start=1):
        stream_records.begin_epoch(store, epoch(number, owner, number))
        stream_records.claim(store, number * 10, batch(number, number))
    epochs = stream_records.owners(store, "nightly")

    def query(owner: str, number: int) -> int | None:
        record = stream_records.find(store, epochs, owner, number)
        return record and record.query

    assert [query("a", 1), query("b", 2), query("a", 3)] == [10, 20, 30]
    # A seal is no query's batch.
    assert [query("a", 2), query("b", 3), query("c", 1)] == [None] * 3
    sealed = list(stream_records.records_of(store, epochs, "a", 2))
    assert sealed == [(1, SEAL)]
