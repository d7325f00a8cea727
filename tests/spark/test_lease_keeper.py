"""Leases of a driver: renewed once a write has taken them, each root on its own, and released."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ffq_spark.exchange.ledger import leases
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.format import paths
from ffq_spark.spark import lease_keeper
from ffq_spark.spark.lease_keeper import LeaseKeeper
from ffq_spark.store import Store

APP = "app-1"
take_lease = leases.renew
QUERY = 7


class Storage:
    """Renewals of leases, counted by root; those of a blocked root wait until it is freed."""

    def __init__(self) -> None:
        self.renewals: list[str] = []
        self.begun: list[str] = []
        self.blocked: dict[str, threading.Event] = {}
        self.broken: set[str] = set()

    def renew(self, store: Store, initiator: str, seconds: int) -> Any:
        self.begun.append(store.root)
        if store.root in self.blocked:
            assert self.blocked[store.root].wait(60)
        if store.root in self.broken:
            raise OSError("out of order")
        renewed = take_lease(store, initiator, seconds)
        self.renewals.append(store.root)
        return renewed

    def block(self, root: str) -> threading.Event:
        self.blocked[root] = threading.Event()
        return self.blocked[root]


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    storage = Storage()
    monkeypatch.setattr(leases, "renew", storage.renew)
    yield storage
    for free in storage.blocked.values():
        free.set()


@pytest.fixture
def keeper() -> LeaseKeeper:
    keeper = LeaseKeeper()
    keeper.start(APP, 30)
    return keeper


def wait_for(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.005)


@pytest.fixture
def roots(new_root: Callable[[], str], keeper: LeaseKeeper) -> list[str]:
    """Return two roots without open queries, on which a write has taken a lease."""
    both = [new_root(), new_root()]
    for root in both:
        take_lease(Store(root), APP, 30)
        keeper.add(root, {})
    return both


def test_a_root_whose_write_was_refused_stays_as_it_was(
    storage: Storage, keeper: LeaseKeeper, root: str
) -> None:
    """Spark runs a refused write for a while: its planning, and the shuffles below it."""
    keeper.add(root, {})
    keeper.start_renewing(root, QUERY)
    for _ in range(3):
        keeper.beat()
        wait_for(lambda: keeper._roots[root]._thread is None)
    keeper.stop_renewing(root, QUERY)
    keeper.release()
    assert storage.begun == [] and not Path(root).exists()


def test_a_lease_is_renewed_from_the_beat_after_a_write_took_it(
    storage: Storage, keeper: LeaseKeeper, root: str
) -> None:
    keeper.add(root, {})
    keeper.start_renewing(root, QUERY)
    take_lease(Store(root), APP, 5)
    keeper.beat()
    wait_for(lambda: leases.read(Store(root), APP).seconds == 30)


def test_a_lease_that_gc_deleted_is_taken_again_by_a_new_keeper(
    keeper: LeaseKeeper, root: str
) -> None:
    """Between gc's look at a lapsed lease and its delete, a write may have renewed the lease."""
    store = Store(root)
    query = Ledger(store).begin("append", APP, lease_seconds=30)
    keeper.add(root, {})
    for number in range(100):
        keeper.start_renewing(root, number)
    keeper.start_renewing(root, query.query)

    def is_taken() -> bool:
        keeper.beat()
        return leases.is_taken(store, APP)

    wait_for(is_taken)


@pytest.mark.parametrize(
    ("initiator", "seconds"), [(APP, 0), ("app-2", 30)], ids=["no lease", "another's"]
)
def test_a_query_without_a_lease_of_this_driver_gets_none(
    storage: Storage, keeper: LeaseKeeper, root: str, initiator: str, seconds: int
) -> None:
    query = Ledger(Store(root)).begin("append", initiator, lease_seconds=seconds)
    keeper.add(root, {})
    keeper.start_renewing(root, query.query)
    keeper.beat()
    wait_for(lambda: keeper._roots[root]._thread is None)
    # A thread of an earlier test may still renew another root.
    assert root not in storage.begun


def test_a_damaged_lease_is_replaced(storage: Storage, keeper: LeaseKeeper, root: str) -> None:
    store = Store(root)
    store.write(paths.lease(APP), [b"{"])
    keeper.add(root, {})
    keeper.start_renewing(root, QUERY)
    wait_for(lambda: storage.renewals)
    assert leases.read(store, APP) is not None


def test_only_roots_with_open_queries_are_renewed(
    storage: Storage, keeper: LeaseKeeper, roots: list[str]
) -> None:
    one, other = roots
    keeper.start_renewing(one, QUERY)
    keeper.start_renewing(one, QUERY + 1)
    wait_for(lambda: storage.renewals)
    keeper.stop_renewing(one, QUERY)
    before = len(storage.renewals)
    keeper.beat()
    wait_for(lambda: len(storage.renewals) > before)
    keeper.stop_renewing(one, QUERY + 1)
    keeper.release()
    storage.renewals.clear()
    keeper.beat()
    assert storage.renewals == [] and other not in storage.begun


def test_a_root_whose_storage_hangs_delays_no_other(
    storage: Storage, keeper: LeaseKeeper, roots: list[str]
) -> None:
    hanging, other = roots
    free = storage.block(hanging)
    keeper.start_renewing(hanging, QUERY)
    wait_for(lambda: storage.begun == [hanging])
    for beats in range(1, 4):
        keeper.start_renewing(other, QUERY) if beats == 1 else keeper.beat()
        wait_for(lambda beats=beats: storage.renewals.count(other) == beats)
    assert storage.begun.count(hanging) == 1, "a beat must not start a second renewal of a root"
    free.set()
    # The beats during the first renewal call for one more.
    wait_for(lambda: storage.renewals.count(hanging) == 2)
    keeper.release()
    assert storage.renewals.count(hanging) == 2


def test_a_renewal_that_fails_is_tried_again_on_the_next_beat(
    storage: Storage,
    keeper: LeaseKeeper,
    roots: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    root = roots[0]
    storage.broken.add(root)
    keeper.start_renewing(root, QUERY)
    wait_for(lambda: "was not renewed: out of order" in caplog.text)
    storage.broken.clear()
    keeper.beat()
    wait_for(lambda: storage.renewals == [root])
    lease = leases.read(Store(root), APP)
    assert lease is not None and lease.seconds == 30


def test_a_thread_that_cannot_start_ends_no_renewal(
    storage: Storage,
    keeper: LeaseKeeper,
    roots: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The system may refuse a thread for a moment."""
    refusals = iter(range(3))

    class Refused(threading.Thread):
        def start(self) -> None:
            if next(refusals, None) is not None:
                raise RuntimeError("can't start new thread")
            super().start()

    monkeypatch.setattr(threading, "Thread", Refused)
    keeper.start_renewing(roots[0], QUERY)
    keeper.start_renewing(roots[1], QUERY)
    assert caplog.text.count("was not renewed: can't start new thread") == 2
    # The first root is refused again; the beat goes on to the second.
    keeper.beat()
    wait_for(lambda: storage.renewals == [roots[1]])
    keeper.beat()
    wait_for(lambda: sorted(storage.renewals) == sorted([roots[1], *roots]))


def test_no_renewal_restores_a_released_lease(
    storage: Storage, keeper: LeaseKeeper, roots: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A renewal is running while the leases are released, and beats come afterwards."""
    root = roots[0]
    free = storage.block(root)
    keeper.start_renewing(root, QUERY)
    wait_for(lambda: storage.begun == [root])
    monkeypatch.setattr(lease_keeper, "_JOIN_SECONDS", 60)
    threading.Timer(0.2, free.set).start()
    keeper.release()
    assert storage.renewals == [root], "the release must wait for the running renewal"
    keeper.beat()
    keeper.start_renewing(root, QUERY)
    assert leases.read(Store(root), APP) is None and storage.begun == [root]


def test_new_credentials_replace_expired_ones() -> None:
    keeper = LeaseKeeper()
    for secret in ("old", "new"):
        keeper.add("s3://bucket/x", {"storage.secret": secret})
    assert keeper.store("s3://bucket/x")._options["secret"] == "new"
    same = keeper.store("s3://bucket/x")
    keeper.add("s3://bucket/x", {"storage.secret": "new"})
    assert keeper.store("s3://bucket/x") is same
