"""The ledger begins and ends queries; each has one outcome and at most one step.

Crashes, races and failing storage are tested in tests/faults.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Place
from gc_scene import Scene

from ffq_spark.errors import BadOption, CorruptRecord, FfqError, QueryExists, StoreFailed
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.format import paths
from ffq_spark.format.records import FormatRecord, Outcome
from ffq_spark.store import Store


@pytest.fixture
def scene(root: str) -> Scene:
    return Scene(Place(root))


def test_a_query_record_is_there_before_anything_else_is_written(scene: Scene) -> None:
    query = scene.begin()
    assert scene.store.read_optional(paths.query(query.query)) == query.encode()
    assert scene.ledger.outcome(query.query) is None


def test_a_number_is_given_to_one_query(scene: Scene) -> None:
    scene.ledger.begin("append", "app-1", query=7)
    with pytest.raises(QueryExists, match="query 7"):
        scene.ledger.begin("append", "app-2", query=7)


def test_a_mode_other_than_append_and_replace_is_refused(scene: Scene) -> None:
    with pytest.raises(BadOption, match="'overwrite'"):
        scene.ledger.begin("overwrite", "app-1")
    assert scene.store.list(paths.QUERIES) == []


def test_every_task_may_open_the_same_query_and_no_other(scene: Scene) -> None:
    query = scene.begin()
    scene.ledger.open(query)
    with pytest.raises(QueryExists):
        scene.ledger.open(replace(query, initiator="another"))


def test_a_commit_gives_a_step_and_leaves_no_marker(scene: Scene) -> None:
    query = scene.begin()
    step = scene.commit(query, scene.attempt(query))
    outcome = scene.outcome(query.query)
    assert (step.step, step.body) == (1, outcome.step)
    assert scene.store.list(paths.PENDING) == []
    assert Ledger(scene.store).confirm(outcome) == step


def test_what_ended_a_query_first_stays(scene: Scene) -> None:
    query = scene.begin().query
    first = scene.ledger.end(query, Outcome.LOST, "lease gone")
    assert scene.ledger.end(query, Outcome.ABORTED, "later") == first
    assert scene.ledger.settle(query, StoreFailed("no answer")) == first


def test_a_marker_without_an_outcome_is_left_alone(scene: Scene) -> None:
    scene.write()
    scene.store.create_once(paths.pending(scene.begin().query), b"{}")
    scene.store.create_once(f"{paths.PENDING}/other.json", b"{}")
    assert scene.ledger.roll_forward() == 0
    assert len(scene.store.list(paths.PENDING)) == 2


def test_a_committed_query_is_rolled_forward_once(scene: Scene) -> None:
    step = scene.write()
    scene.store.delete(paths.step(step.step))
    scene.store.create_once(paths.pending(step.body.query), b"{}")
    assert [Ledger(scene.store).roll_forward() for _ in range(2)] == [1, 0]
    assert scene.ledger.log.read(1) == step


def test_giving_up_records_the_error_and_never_hides_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = scene.begin().query
    ended = scene.ledger.give_up(query, ZeroDivisionError("by 0"))
    assert ended is not None and ended.message == "ZeroDivisionError: by 0"

    def fail(*_: Any) -> bool:
        raise StoreFailed("refused")

    monkeypatch.setattr(Store, "create_once", fail)
    assert scene.ledger.give_up(query + 1, ZeroDivisionError("by 0")) is None


@pytest.mark.parametrize("path", [paths.EXCHANGE, paths.FORMAT])
def test_a_record_older_than_the_steps_cannot_be_missing(scene: Scene, path: str) -> None:
    assert scene.ledger.exchange() is None
    scene.write()
    (Path(scene.place.root) / path).unlink()
    read = scene.ledger.exchange if path == paths.EXCHANGE else scene.ledger.format
    with pytest.raises(CorruptRecord, match=path):
        read()


def test_the_format_is_written_once_and_checked_by_each_writer(scene: Scene) -> None:
    scene.ledger.ensure_format()
    record = scene.ledger.format()
    assert record is not None
    scene.ledger.ensure_format()
    assert scene.ledger.format() == record
    newer = FormatRecord(min_writer=record.min_writer + 1, create_once=record.create_once)
    scene.store.replace(paths.FORMAT, newer.encode())
    with pytest.raises(FfqError):
        scene.ledger.begin("append", "app-1")
