"""Tickets and plans of an exchange that was removed, or removed and written anew."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from service_scene import rows, write

import ffq_spark as ffq
from ffq_spark.errors import CorruptPart, ExchangeNotFound, StepNotFound, TicketStale
from ffq_spark.service.client.exchange import RemoteExchange
from ffq_spark.service.server.service import Service


@pytest.fixture
def service(root: str) -> Iterator[Service]:
    write(root, rows(0, 100))
    write(root, rows(100, 100))
    with ffq.serve({"x": root}, port=0) as served:
        yield served


@pytest.fixture
def remote(service: Service) -> RemoteExchange:
    return ffq.connect(service.url).exchange("x")


def read_task(remote: RemoteExchange, ticket: bytes) -> int:
    return sum(batch.num_rows for batch in remote.read_task(ticket))


def renew(root: str, batch: pa.RecordBatch, **options: Any) -> None:
    """Remove an exchange and write another one in its place."""
    shutil.rmtree(root)
    write(root, batch, **options)


def swap(root: str, batch: pa.RecordBatch) -> None:
    """Put another exchange in an exchange's place at once: a reader never finds none there."""
    write(f"{root}-new", batch)
    Path(root).rename(f"{root}-old")
    Path(f"{root}-new").rename(root)
    shutil.rmtree(f"{root}-old")


@pytest.mark.parametrize("known", [True, False], ids=["remembered", "unknown"])
@pytest.mark.parametrize(
    "renewed",
    [
        {"batch": rows(0, 100)},
        {"batch": rows(0, 100), "partitions": 2},
        {"batch": pa.record_batch({"id": [1]})},
    ],
    ids=["same", "partitions", "columns"],
)
@pytest.mark.parametrize(
    "asked",
    [{}, {"as_of_step": 1}, {"steps": "1..1"}, {"partitions": "3-7"}, {"columns": ["name"]}],
    ids=str,
)
def test_a_ticket_is_stale_once_its_exchange_was_written_anew(
    root: str,
    service: Service,
    remote: RemoteExchange,
    known: bool,
    renewed: dict[str, Any],
    asked: dict[str, Any],
) -> None:
    (ticket,) = remote.tasks(**asked)
    if known:
        assert read_task(remote, ticket) > 0
    renew(root, **renewed)
    for _ in range(2):
        with pytest.raises(TicketStale):
            read_task(remote, ticket)
    assert remote.read().read_all().num_rows == renewed["batch"].num_rows


def test_a_stream_whose_exchange_is_written_anew_meanwhile_ends_as_stale(root: str) -> None:
    write(root, rows(0, 20_000, width=200))
    with ffq.serve({"x": root}, port=0, server_credits=1 << 16, max_readers=1) as service:
        remote = ffq.connect(service.url).exchange("x")
        (ticket,) = remote.tasks()
        batches = remote.read_task(ticket)
        next(batches)
        swap(root, rows(0, 100))
        with pytest.raises(TicketStale):
            list(batches)


@pytest.mark.parametrize("known", [True, False], ids=["remembered", "unknown"])
def test_a_ticket_for_a_key_is_stale_once_the_exchange_has_other_keys(
    root: str, remote: RemoteExchange, known: bool
) -> None:
    (ticket,) = remote.tasks(key=[7])
    if known:
        assert read_task(remote, ticket) == 1
    other = pa.record_batch({"a": ["7"], "b": [7]})
    renew(root, other, keys=("a", "b"))
    write(root, other, keys=("a", "b"))
    with pytest.raises(TicketStale):
        read_task(remote, ticket)


@pytest.mark.parametrize(
    "asked", [{"as_of_step": 1}, {"steps": "1..1"}, {"as_of_step": 1, "key": [7]}], ids=str
)
def test_a_step_of_an_exchange_that_was_written_anew_is_the_new_one(
    root: str, remote: RemoteExchange, asked: dict[str, Any]
) -> None:
    before = remote.read(**asked).read_all()
    assert before.schema.names == ["id", "group", "name"]
    new = pa.record_batch({"id": [7], "new": [1]})
    renew(root, new)
    assert remote.flight_info(**asked).schema.names == ["id", "new"]
    assert remote.read(**asked).read_all().to_pylist() == new.to_pylist()


def test_a_step_that_the_new_exchange_does_not_have_is_not_found(
    root: str, remote: RemoteExchange
) -> None:
    assert remote.read(as_of_step=2).read_all().num_rows == 200
    renew(root, rows(0, 5))
    with pytest.raises(StepNotFound):
        remote.read(as_of_step=2)


def test_a_ticket_of_an_exchange_that_is_gone_says_so(root: str, remote: RemoteExchange) -> None:
    (ticket,) = remote.tasks()
    assert read_task(remote, ticket) == 200
    shutil.rmtree(root)
    with pytest.raises(ExchangeNotFound):
        read_task(remote, ticket)


@pytest.mark.part_files
def test_a_part_that_is_damaged_is_no_stale_ticket(root: str, remote: RemoteExchange) -> None:
    (ticket,) = remote.tasks()
    part = next(Path(root).glob("shuffle/*/*/*/*/part*.ipc"))
    part.write_bytes(part.read_bytes()[:-1] + b"?")
    with pytest.raises(CorruptPart):
        read_task(remote, ticket)
    part.unlink()
    with pytest.raises(CorruptPart):
        read_task(remote, ticket)
