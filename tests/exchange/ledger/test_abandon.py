"""Queries that their driver gave up: what ended first stays, and a later write is left alone."""

from __future__ import annotations

import pytest
from conftest import Place
from gc_scene import Scene

from ffq_spark.errors import CorruptRecord, Fenced
from ffq_spark.exchange.ledger.abandon import end_abandoned
from ffq_spark.exchange.ledger.cancel import request_cancel
from ffq_spark.format import paths
from ffq_spark.format.ids import now_ms
from ffq_spark.format.records import Outcome
from ffq_spark.store import Store


@pytest.fixture
def scene(root: str) -> Scene:
    return Scene(Place(root))


def test_a_commit_after_the_end_is_fenced(scene: Scene) -> None:
    query = scene.begin()
    output = scene.attempt(query)
    ended = end_abandoned(scene.store, query.query, now_ms())
    assert ended is not None and ended.outcome is Outcome.ABORTED
    with pytest.raises(Fenced, match="has ended already as ABORTED"):
        scene.commit(query, output)
    assert end_abandoned(scene.store, query.query, now_ms()) == ended


@pytest.mark.parametrize("outcome", [Outcome.ABORTED, Outcome.LOST, Outcome.COMMITTED])
def test_an_outcome_that_came_first_stays(scene: Scene, outcome: Outcome) -> None:
    query = scene.begin()
    if outcome is Outcome.COMMITTED:
        scene.commit(query, scene.attempt(query))
    else:
        scene.ledger.end(query.query, outcome, "")
    first = scene.outcome(query.query)
    assert end_abandoned(scene.store, query.query, now_ms()) == first
    assert scene.outcome(query.query) == first


def test_a_commit_during_the_end_stays(scene: Scene) -> None:
    """The commit happens after the look for an outcome, just before an outcome is created."""
    query = scene.begin()
    output = scene.attempt(query)

    class Late(Store):
        def create_once(self, path: str, data: bytes) -> bool:
            if path == paths.outcome(query.query):
                scene.commit(query, output)
            return super().create_once(path, data)

    ended = end_abandoned(Late(scene.place.root), query.query, now_ms())
    assert ended is not None and ended.outcome is Outcome.COMMITTED
    assert sum(scene.rows().values()) == 5


def test_a_write_that_was_asked_to_end_is_canceled_by_whoever_asked(scene: Scene) -> None:
    query = scene.begin().query
    request_cancel(scene.store, query, "too slow", who="ann")
    ended = end_abandoned(scene.store, query, now_ms())
    assert ended is not None
    assert (ended.outcome, ended.who) == (Outcome.CANCELED, "ann")


def test_a_record_younger_than_the_giving_up_is_of_a_later_write(scene: Scene) -> None:
    query = scene.begin()
    assert end_abandoned(scene.store, query.query, query.created_at_ms - 1) is None
    assert scene.ledger.outcome(query.query) is None
    assert end_abandoned(scene.store, query.query, query.created_at_ms) is not None


def test_a_damaged_query_record_is_an_error_and_ends_nothing(scene: Scene) -> None:
    query = scene.begin().query
    scene.store.write(paths.query(query), [b"{"])
    with pytest.raises(CorruptRecord) as caught:
        end_abandoned(scene.store, query, now_ms())
    assert caught.value.path == scene.store.url(paths.query(query))
    assert scene.ledger.outcome(query) is None
