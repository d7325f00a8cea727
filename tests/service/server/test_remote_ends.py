"""Ends of producers' queries: aborted, canceled, fenced without a lease, and alive with one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from service_scene import begin, rows

import ffq_spark as ffq
from ffq_spark.errors import (
    Canceled,
    QueryEnded,
)
from ffq_spark.service.client.connection import Connection


def test_a_query_that_has_ended_takes_nothing_more(service: Connection, root: str) -> None:
    step = begin(service)
    step.put(0, [rows(0, 10)])
    assert step.abort("changed my mind")["outcome"] == "ABORTED"
    for more in (lambda: step.put(1, [rows(0, 1)]), lambda: step.commit(1)):
        with pytest.raises(QueryEnded):
            more()
    assert service.exchange("made").status(step.query)["state"] == "FAILED"
    assert service.exchange("made").check() == {step.query: "ABORTED"}


def test_a_query_that_is_canceled_ends_with_its_next_call(service: Connection, root: str) -> None:
    step = begin(service)
    step.put(0, [rows(0, 10)])
    service.exchange("made").cancel(step.query, "too late")
    with pytest.raises(Canceled, match="too late"):
        step.commit(1)
    status = service.exchange("made").status(step.query)
    assert (status["state"], status["message"]) == ("CANCELED", "too late")


def test_a_heartbeat_tells_that_the_query_has_ended(service: Connection, root: str) -> None:
    canceled, committed = begin(service), begin(service)
    for step in (canceled, committed):
        step.put(0, [rows(0, 10)])
        step.heartbeat()
    service.exchange("made").cancel(canceled.query, "too late")
    with pytest.raises(Canceled, match="too late"):
        canceled.heartbeat()
    canceled.abort()
    committed.commit(1)
    for step in (canceled, committed):
        with pytest.raises(QueryEnded):
            step.heartbeat()
    assert not list(Path(root, "_ffq", "leases").iterdir())


def test_a_producer_whose_lease_is_gone_is_fenced(root: str) -> None:
    options = {"port": 0, "writable": True, "lease_seconds": 1}
    with ffq.serve({"made": root}, **options) as served:
        service = ffq.connect(served.url)
        alive, dead = begin(service), begin(service)
        for step in (alive, dead):
            step.put(0, [rows(0, 10)])
        exchange = ffq.Exchange(root)
        while "lease gone" not in exchange.check().values() or dead.query not in exchange.check():
            alive.heartbeat()
        assert alive.query not in exchange.check()
        assert exchange.gc(ttl=0).fenced == [dead.query]
        with pytest.raises(QueryEnded, match="LOST"):
            dead.commit(1)
        assert alive.commit(1)["rows"] == 10
        assert not list(Path(root, "_ffq", "leases").glob(f"*{alive.query}*"))


def test_an_upload_that_takes_longer_than_the_lease_is_alive(root: str) -> None:
    options = {"port": 0, "writable": True, "lease_seconds": 1}
    exchange = ffq.Exchange(root)
    looks = []

    def slowly() -> Iterator[pa.RecordBatch]:
        # The second batch is not held back for a message.
        for first in (0, 100_000):
            yield rows(first, 100_000, width=100)
            for _ in range(4):
                time.sleep(0.4)
                looks.append(exchange.gc(ttl=0).fenced)

    with ffq.serve({"made": root}, **options) as served:
        step = begin(ffq.connect(served.url))
        step.put(0, slowly())
        assert looks == [[]] * 8
        assert step.commit(1)["rows"] == 200_000
        assert not list(Path(root, "_ffq", "leases").iterdir())
