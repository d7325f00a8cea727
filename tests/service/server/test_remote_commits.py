"""Commits of producers outside Spark: one whole step or none, however often they are asked."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from service_scene import PARTITIONS, SCHEMA, begin, rows, serving

import ffq_spark as ffq
from ffq_spark.errors import (
    BadCommit,
    BadOption,
    CommitUnknown,
    FfqError,
    Forbidden,
    QueryNotFound,
    ReplayMismatch,
    StoreFailed,
    StreamOwned,
    Unavailable,
)
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.write.shared_write import SharedWrite
from ffq_spark.service.client.connection import Connection
from ffq_spark.service.client.write import RemoteWrite
from ffq_spark.service.server.remote_writes import RemoteWrites


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


def test_a_number_of_map_tasks_beyond_the_limit_is_refused_at_once(root: str) -> None:
    """The server is another process, because listing all of these tasks would exhaust it."""
    with (
        serving(f"made={root}", "--writable") as server,
        ffq.connect(server.url, retries=0) as service,
    ):
        service.options = flight.FlightCallOptions(timeout=20)
        step = begin(service)
        step.put(0, [rows(0, 10)])
        with pytest.raises(BadOption, match="at most 1000000 map tasks"):
            step.commit((1 << 63) - 1)
        assert step.commit(1)["rows"] == 10


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


@pytest.mark.parametrize("error", [StoreFailed, Forbidden, QueryNotFound])
def test_an_error_after_a_lost_answer_does_not_say_that_the_rows_are_lost(
    service: Connection, root: str, monkeypatch: pytest.MonkeyPatch, error: type[FfqError]
) -> None:
    step = begin(service)
    step.put(0, [rows(0, 10)])
    real = RemoteWrites.commit

    def commit(writes: RemoteWrites, body: Any) -> Any:
        real(writes, body)
        monkeypatch.setattr(RemoteWrites, "commit", fail)
        raise Unavailable("the connection is lost")

    def fail(writes: RemoteWrites, body: Any) -> Any:
        raise error("as it is now")

    monkeypatch.setattr(RemoteWrites, "commit", commit)
    with pytest.raises(CommitUnknown, match=rf"query {step.query}: as it is now"):
        step.commit(1)
    assert ffq.Exchange(root).info().rows == 10


@pytest.mark.parametrize("error", [MemoryError, pa.ArrowMemoryError, pa.ArrowInvalid, RuntimeError])
def test_an_unexpected_failure_behind_the_outcome_leaves_the_commit_unknown(
    service: Connection, root: str, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    step = begin(service)
    step.put(0, [rows(0, 10)])

    def fail(ledger: Ledger, query: int) -> None:
        raise error("unexpected")

    monkeypatch.setattr(Ledger, "_drop_marker", fail)
    body = {"exchange": "made", "query": step.query, "map_tasks": 1}
    # Other clients have no more than the code.
    with pytest.raises(CommitUnknown, match=rf"query {step.query}: .* the service's log"):
        service.action("CommitQuery", body)
    monkeypatch.undo()
    assert ffq.Exchange(root).info().rows == 10
    assert step.commit(1)["step"] == 1


def test_storage_that_fails_before_the_query_is_read_leaves_the_commit_unknown(
    service: Connection, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service cannot know whether this call repeats a commit whose answer was lost."""
    step = begin(service)
    step.put(0, [rows(0, 10)])
    step.commit(1)

    def fail(*arguments: Any, **options: Any) -> Any:
        raise StoreFailed("storage is down")

    monkeypatch.setattr(SharedWrite, "open", fail)
    body = {"exchange": "made", "query": step.query, "map_tasks": 1}
    with pytest.raises(CommitUnknown, match="storage is down"):
        service.action("CommitQuery", body)
