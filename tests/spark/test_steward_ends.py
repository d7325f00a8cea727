"""The steward ends queries that the driver has given up, tested without Spark or a process."""

from __future__ import annotations

from typing import Any

import pytest
from steward_process import APP, Driver, wait_for

from ffq_spark.errors import StoreFailed
from ffq_spark.exchange.ledger.cancel import request_cancel
from ffq_spark.format import paths
from ffq_spark.format.ids import now_ms
from ffq_spark.format.records import Outcome, QueryRecord
from ffq_spark.spark import steward as module
from ffq_spark.spark.lease_keeper import LeaseKeeper
from ffq_spark.spark.steward import Steward
from ffq_spark.spark.tracked_query import LATE_BEATS
from ffq_spark.store.local import LocalBackend

BEAT = {"event": "beat"}


class Office:
    """A steward in this process, and the orders that it sent."""

    def __init__(self) -> None:
        self.orders: list[Any] = []
        self.keeper = LeaseKeeper()
        self.keeper.start(APP, 30)
        self.steward = Steward(self.keeper, self.orders.append)
        self.send({"event": "hello", "initiator": APP, "lease_seconds": 30})

    def send(self, *events: Any) -> None:
        for event in events:
            if event["event"] == "open":
                self.keeper.add(event["root"], event["storage"])
                self.keeper.start_renewing(event["root"], event["query"])
            self.steward.handle(event)

    def recorded_ends(self) -> list[int]:
        return [order["query"] for order in self.orders if order["order"] == "settled"]

    def wait_out(self) -> None:
        """Send the beats during which late tasks may still open a query."""
        for _ in range(LATE_BEATS):
            self.send(BEAT)
        self.steward.look()


@pytest.fixture
def office() -> Office:
    return Office()


@pytest.fixture
def driver(root: str) -> Driver:
    return Driver(root)


def test_a_write_that_was_given_up_is_aborted_once(office: Office, driver: Driver) -> None:
    office.send(driver.open())
    office.steward.look()
    assert driver.ledger.outcome(driver.query) is None
    office.send(driver.give_up())
    office.steward.look()
    first = driver.outcome(driver.query)
    assert first.outcome is Outcome.ABORTED
    office.send(driver.give_up())
    office.wait_out()
    assert office.recorded_ends() == [driver.query]
    assert driver.outcome(driver.query) == first


def test_a_commit_that_came_first_stays(office: Office, driver: Driver) -> None:
    office.send(driver.open())
    query = driver.begin()
    driver.query = query.query
    office.send(driver.open())
    driver.commit(query, driver.attempt(query))
    office.send(driver.give_up())
    office.steward.look()
    assert driver.outcome(query.query).outcome is Outcome.COMMITTED
    assert office.recorded_ends() == [query.query]


def test_a_write_that_was_asked_to_end_is_canceled(office: Office, driver: Driver) -> None:
    office.send(driver.open())
    request_cancel(driver.store, driver.query, "too slow", who="ann")
    office.send(driver.give_up())
    office.steward.look()
    outcome = driver.outcome(driver.query)
    assert (outcome.outcome, outcome.who) == (Outcome.CANCELED, "ann")


def test_nothing_is_recorded_of_a_query_that_never_began(office: Office, driver: Driver) -> None:
    driver.query += 1
    office.send(driver.open(), driver.give_up())
    office.steward.look()
    assert office.recorded_ends() == []
    office.wait_out()
    assert office.recorded_ends() == [driver.query]
    assert driver.ledger.outcome(driver.query) is None


def test_a_killed_task_that_opens_a_given_up_query_late_is_met(
    office: Office, driver: Driver
) -> None:
    """The driver makes the record of a micro-batch, and the first task to start stores it."""
    driver.query += 1
    record = QueryRecord(driver.query, APP, 0, "append", now_ms(), 30)
    office.send(driver.open(), driver.give_up())
    office.steward.look()
    driver.ledger.open(record)
    office.wait_out()
    assert driver.outcome(driver.query).outcome is Outcome.ABORTED
    assert office.recorded_ends() == [driver.query]


def test_a_later_write_of_the_same_number_may_commit(office: Office, driver: Driver) -> None:
    """A write that failed before its query began may be repeated with the user's own number."""
    query = driver.begin()
    driver.query = query.query
    office.send(driver.open(), driver.give_up(query.created_at_ms - 1))
    office.steward.look()
    office.send(driver.open())
    office.wait_out()
    assert office.recorded_ends() == []
    driver.commit(query, driver.attempt(query))
    office.send(driver.give_up())
    office.steward.look()
    assert driver.outcome(query.query).outcome is Outcome.COMMITTED


def test_a_later_write_of_the_same_number_keeps_its_lease(office: Office, driver: Driver) -> None:
    """Events are queued: an earlier write may be settled after the later one was announced."""
    root, number = driver.place.root, driver.query
    office.keeper.add(root, {})
    office.keeper.start_renewing(root, number)
    office.keeper.stop_renewing(root, number)
    office.steward.handle(driver.open())
    before = driver.lease()
    office.keeper.beat()
    wait_for(lambda: driver.lease() != before)


@pytest.mark.parametrize("error", [StoreFailed("out of order"), KeyError("unforeseen")])
def test_what_fails_is_done_later(
    office: Office, driver: Driver, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(*_: Any) -> None:
        raise error

    office.send(driver.open(), driver.give_up())
    with monkeypatch.context() as patch:
        patch.setattr(module, "end_abandoned", refuse)
        office.steward.look()
        assert office.recorded_ends() == []
    office.steward.look()
    assert office.recorded_ends() == [driver.query]


@pytest.mark.parametrize("given_up", [False, True])
def test_a_look_at_hundreds_of_queries_asks_storage_a_bounded_number_of_times(
    office: Office, driver: Driver, monkeypatch: pytest.MonkeyPatch, given_up: bool
) -> None:
    queries = [driver.begin().query for _ in range(300)]
    for driver.query in queries:
        office.send(driver.open(), *[driver.give_up()] * given_up)
    calls: list[str] = []

    def counted(name: str) -> Any:
        usual = getattr(LocalBackend, name)

        def call(self: LocalBackend, path: str, *rest: Any) -> Any:
            if path.startswith(paths.QUERIES):
                calls.append(path)
            return usual(self, path, *rest)

        return call

    for name in ("read", "create", "write", "scan", "delete"):
        monkeypatch.setattr(LocalBackend, name, counted(name))
    most = module._QUERIES_PER_LOOK * (4 if given_up else 1)
    for _ in range(6):
        before = len(calls)
        office.steward.look()
        assert 0 < len(calls) - before <= most
    asked = {path.split("/")[-1].split(".")[0] for path in calls}
    assert asked == {str(query) for query in queries}, "some queries were never looked at"
    office.steward.look()
    assert len(office.recorded_ends()) == (300 if given_up else 0)
