"""Cancellation: any process may request it, one request counts, the initiator ends the query."""

from __future__ import annotations

import getpass
import os
import socket
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from conftest import Place
from faults.fault_processes import at_once
from gc_scene import Scene, rows_of

from ffq_spark.errors import Fenced, QueryEnded, QueryNotFound
from ffq_spark.exchange.ledger.cancel import (
    USER_CANCELED,
    end_unfinished,
    read_cancel,
    request_cancel,
)
from ffq_spark.format.records import CancelRecord, Outcome


@pytest.fixture
def scene(place: Place) -> Scene:
    return Scene(place)


def test_a_request_is_kept_with_who_asked_and_why(scene: Scene) -> None:
    query = scene.begin().query
    record = scene.exchange.cancel(query, "too slow")
    assert read_cancel(scene.store, query) == record
    assert (record.query, record.code, record.message) == (query, USER_CANCELED, "too slow")
    assert record.who == f"{getpass.getuser()}@{socket.gethostname()}:{os.getpid()}"
    assert scene.ledger.outcome(query) is None


def test_a_user_without_a_name_may_ask_too(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr(getpass, "getuser", nameless)
    scene = Scene(Place(root))
    assert scene.exchange.cancel(scene.begin().query, "").who.startswith(f"{os.getuid()}@")


def test_the_first_request_stays_and_all_others_are_given_it(scene: Scene) -> None:
    query = scene.begin().query
    first = request_cancel(scene.store, query, "first", who="one")
    assert request_cancel(scene.store, query, "second", code="OTHER", who="two") == first
    assert read_cancel(scene.store, query) == first


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_of_8_processes_at_once_one_asks(
    kind: str, root: str, request: pytest.FixtureRequest
) -> None:
    place = Place(root)
    if kind == "s3":
        s3: Any = request.getfixturevalue("s3")
        place = Place(f"s3://{s3.bucket}/{uuid.uuid4().hex}", s3.storage_options)
    query = Scene(place).begin().query

    def work(number: int) -> Callable[[Callable[[], None]], CancelRecord]:
        def ask(meet: Callable[[], None]) -> CancelRecord:
            exchange = Scene(place).exchange
            exchange.status()
            meet()
            return exchange.cancel(query, f"from {number}")

        return ask

    answers = at_once([work(number) for number in range(8)])
    assert set(answers) == {read_cancel(Scene(place).store, query)}


@pytest.mark.parametrize("outcome", [Outcome.ABORTED, Outcome.CANCELED, Outcome.LOST])
def test_a_query_that_has_ended_cannot_be_canceled(scene: Scene, outcome: Outcome) -> None:
    query = scene.ended(outcome).query
    with pytest.raises(QueryEnded, match=outcome.value):
        scene.exchange.cancel(query, "")
    assert read_cancel(scene.store, query) is None


def test_a_committed_query_stays_committed(scene: Scene) -> None:
    step = scene.write()
    with pytest.raises(QueryEnded, match="COMMITTED"):
        scene.exchange.cancel(step.body.query, "")
    assert end_unfinished(scene.store, step.body.query, "").outcome is Outcome.COMMITTED
    assert scene.rows() == rows_of(step)


def test_an_unknown_query_cannot_be_canceled(scene: Scene) -> None:
    scene.write()
    with pytest.raises(QueryNotFound, match="12345"):
        scene.exchange.cancel(12345, "")


def test_a_failed_query_that_was_to_be_canceled_ends_as_canceled_by_whom_and_why(
    scene: Scene,
) -> None:
    query = scene.begin().query
    request_cancel(scene.store, query, "too slow", code="QUOTA", who="ann@host:1")
    ended = end_unfinished(scene.store, query, "the job failed")
    assert (ended.outcome, ended.who, ended.code, ended.message) == (
        Outcome.CANCELED,
        "ann@host:1",
        "QUOTA",
        "too slow",
    )
    assert scene.outcome(query) == ended


def test_a_failed_query_that_nobody_canceled_ends_as_aborted(scene: Scene) -> None:
    ended = end_unfinished(scene.store, scene.begin().query, "the job failed")
    assert (ended.outcome, ended.message, ended.who) == (Outcome.ABORTED, "the job failed", "")


def test_canceled_is_for_ever(scene: Scene) -> None:
    kept = scene.write()
    query = scene.begin()
    output = scene.attempt(query)
    request_cancel(scene.store, query.query, "too slow")
    ended = end_unfinished(scene.store, query.query, "")
    with pytest.raises(Fenced, match="CANCELED"):
        scene.commit(query, output)
    assert end_unfinished(scene.store, query.query, "again") == ended
    assert scene.ledger.end(query.query, Outcome.LOST, "") == ended
    with pytest.raises(QueryEnded):
        scene.exchange.cancel(query.query, "again")
    assert scene.rows() == rows_of(kept)
