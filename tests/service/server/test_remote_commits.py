"""Commits of producers outside Spark: one whole step or none, however often they are asked."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from service_scene import PARTITIONS, SCHEMA, begin, rows

import ffq_spark as ffq
from ffq_spark.errors import (
    BadCommit,
    BadOption,
    ReplayMismatch,
    StreamOwned,
)
from ffq_spark.service.client.connection import Connection
from ffq_spark.service.client.write import RemoteWrite


def test_a_step_is_appended_or_replaces(service: Connection, root: str) -> None:
    for mode, first in (("append", 0), ("append", 100), ("replace", 200)):
        step = service.exchange("made").begin(SCHEMA, mode, keys="id", partitions=PARTITIONS)
        step.put(0, [rows(first, 100)])
        step.commit(1)
    assert sorted(ffq.Exchange(root).read().read_all()["id"].to_pylist()) == list(range(200, 300))
    assert ffq.Exchange(root).read(as_of_step=2).read_all().num_rows == 200


@pytest.mark.parametrize(("uploaded", "committed"), [((0, 2), 3), ((0, 1), 1), ((), 2), ((1,), 1)])
def test_a_commit_names_every_map_task_and_no_other(
    service: Connection, root: str, uploaded: tuple[int, ...], committed: int
) -> None:
    step = begin(service)
    for map_task in uploaded:
        step.put(map_task, [rows(map_task * 10, 10)])
    with pytest.raises(BadCommit):
        step.commit(committed)
    assert ffq.Exchange(root).status(step.query)[0].state.name in ("QUEUED", "RUNNING")
    for map_task in set(range(3)) - set(uploaded):
        step.put(map_task, [rows(map_task * 10, 10)])
    step.commit(3)
    assert ffq.Exchange(root).info().rows == 30


def test_a_commit_that_is_repeated_or_raced_is_one_step(service: Connection, root: str) -> None:
    step = begin(service)
    step.put(0, [rows(0, 10)])
    answers: list[Any] = []
    racers = [threading.Thread(target=lambda: answers.append(step.commit(1))) for _ in range(6)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    answers.append(step.commit(1))
    assert [answer["step"] for answer in answers] == [1] * 7
    assert len(ffq.Exchange(root).steps()) == 1


def test_a_batch_of_a_stream_becomes_a_step_once(service: Connection, root: str) -> None:
    for again in range(3):
        step = begin(service, streamId="nightly", batch=0)
        step.put(0, [rows(0, 100)])
        assert step.commit(1)["step"] == (1 if again == 0 else None)
        assert step.commit(1)["step"] == (1 if again == 0 else None)
    assert ffq.Exchange(root).info().rows == 100


def test_other_rows_under_the_number_of_a_batch_are_an_error(
    service: Connection, root: str
) -> None:
    """Repeat the commit as well, as after a lost answer."""

    def deliver(count: int, **options: Any) -> RemoteWrite:
        step = begin(service, streamId="nightly", batch=0, **options)
        step.put(0, [rows(0, count)])
        return step

    assert deliver(5, streamRun="a").commit(1)["step"] == 1
    other = deliver(7, streamRun="a")
    for _ in range(2):
        with pytest.raises(ReplayMismatch, match="first 5 rows"):
            other.commit(1)
    warned = deliver(7, streamRun="a", onMismatch="warn")
    assert [warned.commit(1)["step"] for _ in range(2)] == [None, None]
    with pytest.raises(StreamOwned, match="belongs to a, not to b"):
        deliver(7, streamRun="b").commit(1)
    assert deliver(7, streamRun="b", takeover=True).commit(1)["step"] == 2
    assert ffq.Exchange(root).info().rows == 12
    with pytest.raises(BadOption, match="takeover needs"):
        deliver(7, takeover=True)
