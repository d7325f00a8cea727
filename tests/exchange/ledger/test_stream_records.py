"""A stream has one owner at a time, and an owner's batch is one query in all epochs."""

from __future__ import annotations

import uuid

import pytest

from ffq_spark.errors import StreamOwned
from ffq_spark.exchange.ledger import stream_records
from ffq_spark.format.records import StreamBatch
from ffq_spark.store import Store


@pytest.fixture
def store() -> Store:
    return Store(f"memory://{uuid.uuid4().hex}")


def batch(epoch: int, number: int) -> StreamBatch:
    return StreamBatch("nightly", epoch, number, 3, 1, 2)


def test_an_owner_keeps_its_first_epoch(store: Store) -> None:
    first = stream_records.ensure_owner(store, "nightly", "a", 5)
    assert (first.epoch, first.first) == (1, 5)
    assert stream_records.ensure_owner(store, "nightly", "a", 9) == first


def test_another_owner_has_to_take_the_stream_over(store: Store) -> None:
    first = stream_records.ensure_owner(store, "nightly", "a", 0)
    with pytest.raises(StreamOwned, match="belongs to a"):
        stream_records.ensure_owner(store, "nightly", "b", 0)
    second = stream_records.ensure_owner(store, "nightly", "b", 3, takeover=True)
    assert (second.epoch, second.first) == (2, 3)
    with pytest.raises(StreamOwned, match="belongs to b"):
        stream_records.ensure_owner(store, "nightly", "a", 1)
    assert stream_records.ensure_owner(store, "nightly", "a", 1, takeover=True) == first
    owners = [record.owner for record in stream_records.owners(store, "nightly")]
    assert owners == ["a", "b", "a"]


def test_a_batch_is_claimed_by_one_query(store: Store) -> None:
    assert stream_records.claim(store, 7, batch(1, 0))
    assert stream_records.claim(store, 7, batch(1, 0))
    assert not stream_records.claim(store, 8, batch(1, 0))
    assert stream_records.claim(store, 8, batch(2, 0))


def test_a_batch_is_found_by_its_owner(store: Store) -> None:
    for owner, takeover in (("a", False), ("b", True)):
        epoch = stream_records.ensure_owner(store, "nightly", owner, 0, takeover=takeover).epoch
        stream_records.claim(store, epoch * 10, batch(epoch, 0))
    records = [stream_records.find(store, "nightly", owner, 0) for owner in ("a", "b", "c")]
    assert [record and record.query for record in records] == [10, 20, None]
    assert stream_records.find(store, "nightly", "a", 1) is None
