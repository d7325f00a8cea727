"""Reader slots, waiting, and draining."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pyarrow.flight as flight
import pytest
from service_scene import rows, until, with_one_reader, write

import ffq_spark as ffq
from ffq_spark.errors import Unavailable
from ffq_spark.service.server.concurrency import ActiveCalls, ConcurrencyLimit


def test_readers_beyond_the_limit_wait_and_are_told_to_come_again(root: str) -> None:
    write(root, rows(0, 200_000, width=200), partitions=1)
    service, slow, reader = with_one_reader(root, max_wait=0, drain_seconds=0)
    with service:
        with pytest.raises(Unavailable, match=r"all reader slots \(1\) stayed busy"):
            ffq.connect(service.url, retries=0).exchange("x").read().read_next_batch()
        assert slow.health()["readers"] == 1
        # The slot is free as soon as the first reader disconnects.
        slow.close()
        del reader
        table = ffq.connect(service.url, retries=12).exchange("x").read().read_all()
        assert table.num_rows == 200_000


def test_a_reader_that_stops_reading_loses_its_slot_to_one_who_waits(root: str) -> None:
    write(root, rows(0, 200_000, width=200), partitions=1)
    options = {"max_readers": 1, "max_wait": 0, "max_idle": 1, "server_credits": 1 << 20}
    with ffq.serve({"x": root}, port=0, drain_seconds=0, **options) as service:
        first, second = (ffq.connect(service.url, retries=20).exchange("x") for _ in range(2))
        reader = first.read()
        ids = reader.read_next_batch()["id"].to_pylist()
        assert second.read().read_all().num_rows == 200_000
        # The stream ended with an error, after which the client resumes it.
        assert service.server.activity.totals.calls["stream", "FFQ_UNAVAILABLE"] > 0
        assert ids + reader.read_all()["id"].to_pylist() == list(range(200_000))


def test_a_reader_that_reads_on_keeps_its_slot(root: str) -> None:
    write(root, rows(0, 200_000, width=200), partitions=1)
    service, slow, reader = with_one_reader(root, max_wait=0, max_idle=3, drain_seconds=0)
    with service, slow:
        other = ffq.connect(service.url, retries=0).exchange("x")
        for _ in range(8):
            time.sleep(0.5)
            for _ in range(20):
                reader.read_next_batch()
            with pytest.raises(Unavailable, match="all reader slots"):
                other.read().read_next_batch()


def test_callers_who_have_gone_wait_no_longer(root: str) -> None:
    write(root, rows(0, 200_000, width=200), partitions=1)
    service, slow, reader = with_one_reader(root, max_wait=600, drain_seconds=0)
    with service, slow:
        (ticket,) = slow.exchange("x").tasks()
        waiting = [slow.client.do_get(flight.Ticket(ticket)) for _ in range(5)]
        until(lambda: slow.health()["waiting"] == 5)
        for stream in waiting:
            stream.cancel()
        until(lambda: slow.health()["waiting"] == 0)
        assert reader.read_next_batch().num_rows > 0


def test_while_it_is_emptied_calls_finish_and_new_ones_are_refused(root: str) -> None:
    write(root, rows(0, 300_000, width=100), partitions=1)
    service, _connection, reader = with_one_reader(root)
    closed: list[bool] = []
    closer = threading.Thread(target=lambda: closed.append(service.close(drain=60)))
    closer.start()
    until(lambda: service.server.activity.calls.draining)
    with pytest.raises(Unavailable, match="shutting down"):
        ffq.connect(service.url, retries=0).exchanges()
    ids = reader.read_all()["id"].to_pylist()
    assert ids == list(range(ids[0], 300_000)) and ids[0] > 0
    closer.join(60)
    assert closed == [True]


def test_slots_are_given_in_the_order_of_arrival() -> None:
    limit = ConcurrencyLimit("reader", slots=1, wait_seconds=60)
    order: list[int] = []

    def wait(number: int) -> None:
        with limit.slot():
            order.append(number)

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(5)]
    with limit.slot():
        for number, thread in enumerate(threads):
            thread.start()
            until(lambda n=number: limit.waiting == n + 1)
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3, 4] and limit.active == limit.waiting == 0


def test_a_closed_limit_refuses_those_who_wait_and_those_who_come() -> None:
    limit = ConcurrencyLimit("reader", slots=1, wait_seconds=60)
    refused: list[Unavailable] = []

    def wait() -> None:
        try:
            with limit.slot():
                pass
        except Unavailable as error:
            refused.append(error)

    thread = threading.Thread(target=wait)
    with limit.slot():
        thread.start()
        until(lambda: limit.waiting == 1)
        limit.close()
        thread.join()
    assert "shutting down" in str(refused[0])
    with pytest.raises(Unavailable, match="shutting down"), limit.slot():
        pass
    assert limit.active == 0


def test_one_who_has_gone_leaves_the_queue_to_the_others() -> None:
    limit = ConcurrencyLimit("writer", slots=1, wait_seconds=60)
    gone = threading.Event()
    errors: list[Unavailable] = []
    entered: list[str] = []

    def wait(name: str, has_gone: Callable[[], bool]) -> None:
        try:
            with limit.slot(has_gone):
                entered.append(name)
        except Unavailable as error:
            errors.append(error)

    first = threading.Thread(target=wait, args=("first", gone.is_set))
    second = threading.Thread(target=wait, args=("second", lambda: False))
    with limit.slot():
        for number, thread in enumerate((first, second), start=1):
            thread.start()
            until(lambda n=number: limit.waiting == n)
        gone.set()
        first.join()
        assert limit.waiting == 1 and "the caller has disconnected" in str(errors[0])
    second.join()
    assert entered == ["second"] and limit.active == limit.waiting == 0


def test_one_who_waits_ends_the_idle_ones_and_one_who_need_not_wait_does_not() -> None:
    limit = ConcurrencyLimit("reader", slots=2, wait_seconds=0)
    asked: list[str] = []
    idle = limit.slot(end_idle=lambda: (asked.append("ended"), idle.__exit__(None, None, None)))
    busy = limit.slot(end_idle=lambda: asked.append("busy"))
    with busy:
        idle.__enter__()
        assert asked == []
        with limit.slot():
            assert asked == ["busy", "ended"] and limit.active == 2
            with pytest.raises(Unavailable), limit.slot():
                pass
    assert limit.active == 0


def test_draining_refuses_new_calls_and_says_if_the_others_finished() -> None:
    calls = ActiveCalls()
    with calls.track():
        calls.refuse_stopped()
        assert calls.drain(0) is False
        with pytest.raises(Unavailable, match="shutting down"):
            calls.refuse_stopped()
    assert calls.drain(0) is True
    with pytest.raises(Unavailable, match="shutting down"), calls.track():
        pass
