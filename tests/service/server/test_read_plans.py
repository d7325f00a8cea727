"""Tickets name one snapshot for ever; plans are cached by request."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from service_scene import MANY, rows, serving, write

import ffq_spark as ffq
from ffq_spark.errors import (
    BadOption,
    StepExpired,
    StepNotFound,
    TicketStale,
)


@pytest.mark.parametrize("remembered", [True, False])
def test_a_ticket_whose_snapshot_has_expired_says_so(
    connect: Any, two_steps: ffq.Exchange, remembered: bool
) -> None:
    exchange = connect({"orders": two_steps.root}).exchange("orders")
    (ticket,) = exchange.tasks(as_of_step=1)
    for _ in range(2):
        write(two_steps.root, rows(0, 10), mode="replace")
    assert two_steps.gc(ttl=0, retention=0).expired == [1, 2]
    if not remembered:
        exchange = connect({"orders": two_steps.root}).exchange("orders")
    with pytest.raises(StepExpired):
        list(exchange.read_task(ticket))


def test_a_range_of_steps_that_ends_beyond_the_log_is_refused_at_once(root: str) -> None:
    """The server is another process, because listing all of these steps would exhaust it."""
    write(root, rows(0, 10))
    with serving(f"x={root}") as server, ffq.connect(server.url, retries=0) as connection:
        # A call that takes longer has begun to read the range.
        connection.options = flight.FlightCallOptions(timeout=20)
        exchange = connection.exchange("x")
        for last in (262_144, 10**15):
            with pytest.raises(StepNotFound, match=f"there is no step {last}"):
                exchange.read(steps=f"1..{last}")
        for text in (f"1..{10**30}", f"1..{'9' * 5_000}", f"{10**30}"):
            with pytest.raises(BadOption, match=r"must be 17, 10\.\.17, latest or all"):
                exchange.read(steps=text)
        assert exchange.read(steps="1..1").read_all().num_rows == 10


@pytest.mark.parametrize("mode", ["append", "replace"])
def test_a_ticket_gives_its_snapshot_after_later_writes(
    connect: Any, two_steps: ffq.Exchange, mode: str
) -> None:
    remote = connect({"orders": two_steps.root}).exchange("orders")
    tickets = remote.tasks(target_partition_bytes=10_000)
    reader = remote.read()
    write(two_steps.root, rows(10**6, 300), mode=mode)
    for table in (
        pa.Table.from_batches([b for t in tickets for b in remote.read_task(t)]),
        reader.read_all(),
    ):
        assert sorted(table["id"].to_pylist()) == list(range(MANY + 100))
    now = MANY + 400 if mode == "append" else 300
    assert remote.read().read_all().num_rows == now


def test_a_ticket_outlives_its_server(connect: Any, two_steps: ffq.Exchange) -> None:
    tickets = connect({"orders": two_steps.root}).exchange("orders").tasks()
    again = connect({"orders": two_steps.root}).exchange("orders")
    table = pa.Table.from_batches([b for t in tickets for b in again.read_task(t)])
    assert sorted(table["id"].to_pylist()) == list(range(MANY + 100))


def test_a_ticket_whose_parts_differ_is_stale(connect: Any, two_steps: ffq.Exchange) -> None:
    remote = connect({"orders": two_steps.root}).exchange("orders")
    (ticket,) = remote.tasks()
    for change in ({"check": 1}, {"count": 1}, {"first": 1}, {"as_of_step": 1}):
        changed = json.dumps({**json.loads(ticket), **change}).encode()
        with pytest.raises(TicketStale):
            list(remote.read_task(changed))


def test_tickets_of_a_heavy_partition_divide_its_rows_by_their_keys(
    connect: Any, root: str
) -> None:
    for _ in range(2):
        write(root, rows(0, 300), partitions=1)
    remote = connect({"orders": root}).exchange("orders")
    info = remote.flight_info(split="hash", target_partition_bytes=1, max_tasks=4)
    tickets = [endpoint.ticket.ticket for endpoint in info.endpoints]
    read = [pa.Table.from_batches(remote.read_task(ticket))["id"].to_pylist() for ticket in tickets]
    assert len(read) == 4 and info.total_records == 600
    assert sorted(id for ids in read for id in ids) == sorted([*range(300)] * 2)
    assert sum(len(set(ids)) for ids in read) == 300, "both rows of an id are in one ticket"
    later = json.dumps({**json.loads(tickets[1]), "skip": 3}).encode()
    assert pa.Table.from_batches(remote.read_task(later))["id"].to_pylist() == read[1][3:]
    for shard in ({"shard": 4}, {"shards": 1 << 40}):
        with pytest.raises(BadOption, match="must be a number from 0"):
            list(remote.read_task(json.dumps({**json.loads(tickets[1]), **shard}).encode()))
    with pytest.raises(BadOption, match="must be one of never, hash, map"):
        remote.tasks(split="always")


def test_a_ticket_of_an_unrecorded_root_is_stale_when_its_attempt_is_no_longer_the_latest(
    connect: Any, root: str, tmp_path: Path
) -> None:
    """FFQ's rule lets a later attempt replace an earlier one; a ticket does not follow it."""
    import shutil

    exchange = write(root, rows(0, 100))
    query = exchange.steps()[0].body.query
    bare = tmp_path / "bare"
    shutil.copytree(Path(root, "shuffle"), bare / "shuffle")
    remote = connect({"bare": str(bare)}).exchange("bare")
    (ticket,) = remote.tasks(query=query)
    assert sum(b.num_rows for b in remote.read_task(ticket)) == 100
    task = bare / "shuffle" / str(query) / "0" / "0"
    shutil.copytree(task / "1", task / "2")
    for name in ("index.json", "index.bin"):
        (task / "2" / name).unlink()
    index = (task / "1" / "index.json").read_text()
    newer = index.replace('"attempt": 1', '"attempt": 2').replace("/0/0/1/", "/0/0/2/")
    (task / "2" / "index.json").write_text(newer)
    with pytest.raises(TicketStale):
        list(remote.read_task(ticket))


def test_a_ticket_of_an_exchange_that_was_written_anew_is_good(connect: Any, root: str) -> None:
    service = connect({"x": root})
    for first in (0, 1_000):
        shutil.rmtree(root, ignore_errors=True)
        write(root, rows(first, 50))
        table = service.exchange("x").read().read_all()
        assert sorted(table["id"].to_pylist()) == list(range(first, first + 50))


def test_a_key_is_not_taken_for_another_that_python_calls_equal(
    connect: Any, two_steps: ffq.Exchange
) -> None:
    """The cache of plans distinguishes requests with equal keys of different types."""
    remote = connect({"x": two_steps.root}).exchange("x")
    for one in (1, 1.0):
        assert remote.read(key=[one], as_of_step=1).read_all()["id"].to_pylist() == [1]
    with pytest.raises(BadOption, match="True is not of type int64"):
        remote.read(key=[True], as_of_step=1)
