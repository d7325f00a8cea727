"""Leases: which initiators are active, and that readers never see half a lease."""

from __future__ import annotations

import threading

import pytest
from conftest import Place

from ffq_spark.errors import CorruptRecord
from ffq_spark.exchange.ledger import leases
from ffq_spark.format import ids, paths
from ffq_spark.format.ids import now_ms
from ffq_spark.format.records import LeaseRecord, QueryRecord
from ffq_spark.store import Store

DRIVER = "app-1"


@pytest.fixture
def store(place: Place) -> Store:
    return Store(place.root, place.storage_options)


def query(created_at_ms: int, lease_seconds: int = 30) -> QueryRecord:
    return QueryRecord(1, DRIVER, 0, "append", created_at_ms, lease_seconds)


def test_a_lease_says_when_it_was_renewed_and_ends_its_seconds_later(store: Store) -> None:
    before = now_ms()
    leases.renew(store, DRIVER, 30)
    lease = leases.read(store, DRIVER)
    assert lease is not None and before <= lease.renewed_at_ms <= now_ms()
    assert lease.expires_at_ms == lease.renewed_at_ms + 30_000


def test_a_query_takes_its_lease_if_it_asks_for_one(store: Store) -> None:
    leases.take(store, query(0, lease_seconds=0))
    assert not leases.is_taken(store, DRIVER)
    leases.take(store, query(0, lease_seconds=30))
    lease = leases.read(store, DRIVER)
    assert lease is not None and lease.seconds == 30


def test_a_renewal_replaces_the_lease(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    leases.renew(store, DRIVER, 30)
    first = leases.read(store, DRIVER)
    later = now_ms() + 5_000
    monkeypatch.setattr(ids.time, "time_ns", lambda: later * 1_000_000)
    leases.renew(store, DRIVER, 60)
    assert leases.read(store, DRIVER) == LeaseRecord(DRIVER, 60, later) != first
    assert [entry.name for entry in store.list(paths.LEASES)] == [f"{DRIVER}.json"]


def test_a_lease_that_was_released_is_gone_and_can_be_released_again(store: Store) -> None:
    leases.renew(store, DRIVER, 30)
    leases.renew(store, "app-2", 30)
    for _ in range(2):
        leases.release(store, DRIVER)
        assert leases.read(store, DRIVER) is None
    assert leases.read(store, "app-2") is not None


def test_a_query_lives_as_long_as_its_lease_and_not_a_millisecond_more(store: Store) -> None:
    record = query(created_at_ms=0)
    leases.renew(store, DRIVER, 30)
    lease = leases.read(store, DRIVER)
    assert lease is not None
    assert leases.is_active(store, record, lease.expires_at_ms - 1)
    assert not leases.is_active(store, record, lease.expires_at_ms)


def test_a_query_whose_lease_was_released_lives_only_as_if_just_renewed(store: Store) -> None:
    record = query(created_at_ms=1_000_000, lease_seconds=30)
    assert leases.is_active(store, record, 1_029_999)
    assert not leases.is_active(store, record, 1_030_000)


def test_another_drivers_lease_keeps_nobody_else_alive(store: Store) -> None:
    leases.renew(store, "app-2", 3600)
    assert not leases.is_active(store, query(created_at_ms=0), now_ms())


def test_a_query_without_a_lease_lives_a_day(store: Store) -> None:
    record = query(created_at_ms=5, lease_seconds=0)
    leases.renew(store, DRIVER, 3600)
    assert leases.is_active(store, record, 5 + leases.UNLEASED_MS - 1)
    assert not leases.is_active(store, record, 5 + leases.UNLEASED_MS)


def test_a_lease_that_cannot_be_read_is_an_error_that_names_it(store: Store) -> None:
    store.write(paths.lease(DRIVER), [b'{"initiator": "app-1"'])
    with pytest.raises(CorruptRecord, match=f"{DRIVER}.json"):
        leases.is_active(store, query(created_at_ms=0), now_ms())


def test_readers_see_whole_leases_alone_while_two_processes_renew(place: Place) -> None:
    """gc must never see a missing or partial lease while a driver renews it."""
    stop = threading.Event()

    def renew(seconds: int) -> None:
        own = Store(place.root, place.storage_options)
        while not stop.is_set():
            leases.renew(own, DRIVER, seconds)

    threads = [threading.Thread(target=renew, args=[10**n]) for n in (1, 9)]
    store = Store(place.root, place.storage_options)
    leases.renew(store, DRIVER, 1)
    for thread in threads:
        thread.start()
    try:
        for _ in range(200):
            assert leases.read(store, DRIVER) is not None
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert [entry.name for entry in store.list(paths.LEASES)] == [f"{DRIVER}.json"]
