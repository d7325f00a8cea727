"""ReadPlanner through the service: exactly the rows of one snapshot, whatever happens meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from service_scene import PARTITIONS, Caller, rows, sorted_rows, write

import ffq_spark as ffq
from ffq_spark.errors import (
    BadOption,
    BadRequest,
    CorruptPart,
    ExchangeNotFound,
    FfqError,
    KeyColumnMissing,
    NotRegistered,
    PartitionNotFound,
    StepExpired,
    StepNotFound,
    TicketStale,
    Unavailable,
)
from ffq_spark.service.client.channel import Channel

MANY = 2_000


@pytest.fixture
def two_steps(root: str) -> ffq.Exchange:
    write(root, rows(0, MANY))
    return write(root, rows(MANY, 100))


@pytest.fixture
def connect() -> Any:
    """Serve roots and connect to them; all of it ends with the test."""
    opened: list[Any] = []

    def start(roots: Any, **options: Any) -> ffq.service.client.Connection:  # type: ignore[name-defined]
        service = ffq.serve(roots, **{"port": 0, "drain_seconds": 0, **options})
        connection = ffq.connect(service.url, retries=0)
        opened.extend([connection, service])
        connection.port = service.server.port  # type: ignore[attr-defined]
        return connection

    yield start
    for thing in opened:
        thing.close()


# --- what there is ----------------------------------------------------------------------------


def test_exchanges_are_listed_by_name_never_by_path(
    connect: Any, two_steps: ffq.Exchange, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    write(str(lake / "a"), rows(0, 10))
    write(str(lake / "b"), rows(0, 20))
    (lake / "no exchange").mkdir()
    service = connect({"lake": str(lake), "orders": two_steps.root})
    assert service.exchanges() == ["lake/a", "lake/b", "orders"]
    assert service.exchanges("lake/b") == ["lake/b"]
    (info,) = service.client.list_flights(b"orders", service.options)
    assert (info.total_records, info.schema.names) == (MANY + 100, ["id", "group", "name"])
    told = json.loads(info.app_metadata)
    assert told == {"step": 2, "keys": ["id"], "partitions": PARTITIONS}
    assert str(tmp_path) not in str(info)


def test_a_broken_exchange_is_listed_with_its_error(connect: Any, tmp_path: Path) -> None:
    write(str(tmp_path / "good"), rows(0, 10))
    (tmp_path / "broken" / "_ffq").mkdir(parents=True)
    (tmp_path / "broken" / "_ffq" / "format.json").write_text("{")
    service = connect({"lake": str(tmp_path)})
    assert service.exchanges() == ["lake/broken", "lake/good"]
    (info,) = service.client.list_flights(b"lake/broken", service.options)
    error = json.loads(info.app_metadata)["error"]
    assert "FFQ_CORRUPT_RECORD" in error and str(tmp_path) not in error and "lake/broken" in error


def test_info_tells_schema_rows_bytes_and_a_ticket_for_each_task(
    connect: Any, two_steps: ffq.Exchange
) -> None:
    exchange = connect({"orders": two_steps.root}).exchange("orders")
    info = exchange.flight_info(target_partition_bytes=1)
    known = two_steps.info()
    assert (info.total_records, info.total_bytes) == (known.rows, known.bytes)
    assert info.schema == known.schema
    # Two steps: each partition is two parts, and read by two tasks.
    assert len(info.endpoints) == 2 * PARTITIONS
    assert all(end.locations == [] for end in info.endpoints)
    assert len(exchange.flight_info().endpoints) == 1
    assert len(exchange.flight_info(target_partition_bytes=1, max_tasks=3).endpoints) == 3
    by_path = flight.FlightDescriptor.for_path("orders")
    again = exchange._channel.client.get_flight_info(by_path)
    assert (again.total_records, again.schema) == (known.rows, known.schema)


def test_strings_of_any_bytes_are_read_and_looked_up(connect: Any, root: str) -> None:
    texts = pa.array([b"a", b"\xff"], pa.binary()).view(pa.string())
    write(root, pa.record_batch({"id": texts, "v": [1, 2]}), statistics=("all",))
    exchange = connect({"orders": root}).exchange("orders")
    assert exchange.read().read_all().num_rows == 2
    assert exchange.lookup("\udcff")["v"].to_pylist() == [2]


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


def test_the_tickets_of_a_read_give_every_row_once_in_any_order(
    connect: Any, two_steps: ffq.Exchange
) -> None:
    exchange = connect({"orders": two_steps.root}).exchange("orders")
    tickets = exchange.tasks(target_partition_bytes=5_000)
    assert len(tickets) > 3
    found = [batch for ticket in reversed(tickets) for batch in exchange.read_task(ticket)]
    assert sorted(pa.Table.from_batches(found)["id"].to_pylist()) == list(range(MANY + 100))


READS: list[dict[str, Any]] = [
    {},
    {"columns": ["name", "id"]},
    {"columns": "group"},
    {"partitions": [0, 3]},
    {"partitions": "2-4"},
    {"steps": "1"},
    {"steps": "latest"},
    {"steps": "all"},
    {"as_of_step": 1},
    {"metadata_columns": True},
    {"columns": ["id"], "metadata_columns": True, "partitions": 1},
]


@pytest.mark.parametrize("options", READS, ids=str)
@pytest.mark.parametrize("layout", ["parts", "packed"])
def test_a_read_gives_what_the_exchange_itself_gives(
    connect: Any, root: str, options: dict[str, Any], layout: str
) -> None:
    write(root, rows(0, MANY), layout=layout)
    local = write(root, rows(MANY, 100), layout=layout)
    remote = connect({"orders": root}).exchange("orders")
    expected = local.read(**options).read_all()
    found = remote.read(target_partition_bytes=4_000, **options).read_all()
    assert found.schema == expected.schema
    assert sorted_rows(found) == sorted_rows(expected) and found.num_rows


def test_one_query_of_an_exchange_is_read(connect: Any, two_steps: ffq.Exchange) -> None:
    query = two_steps.steps()[1].body.query
    remote = connect({"orders": two_steps.root}).exchange("orders")
    assert remote.read(query=query).read_all().num_rows == 100
    assert remote.read(query=query, attempt=0).read_all().num_rows == 100


@pytest.mark.parametrize("key", [5, 77, MANY + 3, 10**9])
def test_a_key_opens_one_partition_and_gives_its_rows_alone(
    connect: Any, two_steps: ffq.Exchange, key: int
) -> None:
    remote = connect({"orders": two_steps.root}).exchange("orders")
    expected = two_steps.lookup(key)
    assert remote.lookup(key).to_pylist() == expected.to_pylist()
    assert remote.lookup(key, columns=["name"]).to_pylist() == [
        {"name": row["name"]} for row in expected.to_pylist()
    ]
    info = remote.flight_info(key=[key])
    assert info.total_records == -1 and len(info.endpoints) <= 1


def test_rows_with_weights_are_consolidated(connect: Any, root: str) -> None:
    batch = pa.record_batch({"id": [1, 2, 2, 3], "w": [1, 1, 1, 1]})
    write(root, batch, weight_column="w")
    write(root, pa.record_batch({"id": [1, 3], "w": [-1, 4]}))
    remote = connect({"z": root}).exchange("z")
    found = remote.read(consolidate=True).read_all()
    assert sorted_rows(found) == [{"id": 2, "w": 2}, {"id": 3, "w": 5}]


def test_an_exchange_on_any_storage_is_served(place: Any) -> None:
    local = write(place.root, rows(0, 500), storage=place.storage_options)
    options = {"port": 0, "storage_options": place.storage_options}
    with ffq.serve({"x": place.root}, **options) as service:
        remote = ffq.connect(service.url).exchange("x")
        assert sorted_rows(remote.read().read_all()) == sorted_rows(local.read().read_all())


# --- tickets never change their mind ----------------------------------------------------------


@pytest.mark.parametrize("mode", ["append", "replace"])
def test_a_ticket_gives_its_snapshot_after_later_writes(
    connect: Any, two_steps: ffq.Exchange, mode: str
) -> None:
    remote = connect({"orders": two_steps.root}).exchange("orders")
    tickets = remote.tasks(target_partition_bytes=10_000)
    reader = remote.read()
    write(two_steps.root, rows(10**6, 300), mode=mode)
    for found in (
        pa.Table.from_batches([b for t in tickets for b in remote.read_task(t)]),
        reader.read_all(),
    ):
        assert sorted(found["id"].to_pylist()) == list(range(MANY + 100))
    now = MANY + 400 if mode == "append" else 300
    assert remote.read().read_all().num_rows == now


def test_a_ticket_outlives_its_server(connect: Any, two_steps: ffq.Exchange) -> None:
    tickets = connect({"orders": two_steps.root}).exchange("orders").tasks()
    again = connect({"orders": two_steps.root}).exchange("orders")
    found = pa.Table.from_batches([b for t in tickets for b in again.read_task(t)])
    assert sorted(found["id"].to_pylist()) == list(range(MANY + 100))


def test_a_ticket_whose_parts_differ_is_stale(connect: Any, two_steps: ffq.Exchange) -> None:
    remote = connect({"orders": two_steps.root}).exchange("orders")
    (ticket,) = remote.tasks()
    for change in ({"check": 1}, {"count": 1}, {"first": 1}, {"as_of_step": 1}):
        changed = json.dumps({**json.loads(ticket), **change}).encode()
        with pytest.raises(TicketStale):
            list(remote.read_task(changed))


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


@pytest.mark.parametrize("layout", ["parts", "packed"])
def test_a_read_goes_on_with_any_row_whatever_the_server_holds(
    connect: Any, root: str, layout: str
) -> None:
    """The order of rows depends on the ticket alone, not on credits or messages."""
    write(root, rows(0, 500), layout=layout)
    write(root, rows(500, 500), layout=layout)
    small = connect({"x": root}, server_credits=1 << 10, max_readers=1, max_message_bytes=200)
    large = connect({"x": root})
    (ticket,) = large.exchange("x").tasks()
    whole = pa.Table.from_batches(list(large.exchange("x").read_task(ticket)))
    for skip in (0, 1, 499, 777, 1000, 2000):
        later = json.dumps({**json.loads(ticket), "skip": skip}).encode()
        batches = list(small.exchange("x").read_task(later))
        found = pa.Table.from_batches(batches, whole.schema)
        assert found.to_pylist() == whole.slice(skip).to_pylist()


# --- parts larger than a reader's share -------------------------------------------------------

PAYLOADS = [("arrow", "none"), ("arrow", "zstd"), ("ffqs", "none"), ("ffqs", "lz4")]


@pytest.mark.parametrize(("payload", "compression"), PAYLOADS)
@pytest.mark.parametrize("layout", ["parts", "packed"])
def test_parts_of_any_size_are_read_in_pieces(
    connect: Any, root: str, payload: str, compression: str, layout: str
) -> None:
    options = {"payload": payload, "compression": compression, "layout": layout, "partitions": 2}
    local = write(root, rows(0, 3_000, width=200), **options)
    assert min(local.parts()["bytes"].to_pylist()) > 5_000
    remote = connect({"x": root}, server_credits=8_000, max_readers=2).exchange("x")
    for given in ({}, {"columns": ["name"]}, {"metadata_columns": True}):
        expected = local.read(**given).read_all()
        assert sorted_rows(remote.read(**given).read_all()) == sorted_rows(expected)


@pytest.mark.part_files
@pytest.mark.parametrize("credits", [1_000, 1 << 30], ids=["in pieces", "whole"])
@pytest.mark.parametrize("damage", ["flip", "cut", "grow", "gone"])
def test_a_damaged_part_is_an_error_that_names_it_and_no_row_of_it_is_given(
    connect: Any, root: str, credits: int, damage: str
) -> None:
    local = write(root, rows(0, 2_000, width=100), partitions=1)
    (part,) = local.parts()["file"].to_pylist()
    path = Path(root, part)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    changed = {"flip": data, "cut": data[:-8], "grow": data + b"x"}
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(changed[damage])
    remote = connect({"x": root}, server_credits=credits, max_readers=1).exchange("x")
    reader = remote.read()
    with pytest.raises(CorruptPart) as caught:
        reader.read_next_batch()
    assert f"x/{part}" in str(caught.value) and root not in str(caught.value)


def test_a_ticket_of_an_exchange_that_was_written_anew_is_good(connect: Any, root: str) -> None:
    service = connect({"x": root})
    for first in (0, 1_000):
        shutil.rmtree(root, ignore_errors=True)
        write(root, rows(first, 50))
        found = service.exchange("x").read().read_all()
        assert sorted(found["id"].to_pylist()) == list(range(first, first + 50))


def test_a_text_is_one_key(connect: Any, tmp_path: Path) -> None:
    batch = pa.record_batch({"one": ["a", "ab"], "two": ["b", "b"]})
    roots = {name: str(tmp_path / name) for name in ("by-1", "by-2")}
    write(roots["by-1"], batch, keys=("one",))
    write(roots["by-2"], batch, keys=("one", "two"))
    service = connect(roots)
    assert service.exchange("by-1").read(key="ab").read_all()["one"].to_pylist() == ["ab"]
    assert service.exchange("by-2").read(key=("a", "b")).read_all()["one"].to_pylist() == ["a"]
    with pytest.raises(BadOption):
        service.exchange("by-2").read(key="ab")


def test_a_stream_that_cannot_go_on_says_so_at_once() -> None:
    class Cut:
        """A service that is gone after the first rows."""

        asked = 0

        def do_get(self, ticket: Any, options: Any) -> Any:
            self.asked += 1
            yield SimpleNamespace(data=rows(0, 5))
            raise flight.FlightUnavailableError("gone")

    client = Cut()
    found = Channel(client, None, retries=8).stream(b'{"kind": "results", "query": 5}')
    assert next(found).num_rows == 5
    started = time.monotonic()
    with pytest.raises(Unavailable, match="only streams of read tasks can be resumed"):
        next(found)
    assert client.asked == 1 and time.monotonic() - started < 2


def test_a_key_is_not_taken_for_another_that_python_calls_equal(
    connect: Any, two_steps: ffq.Exchange
) -> None:
    """A plan is remembered for the very request that it was made for."""
    remote = connect({"x": two_steps.root}).exchange("x")
    for one in (1, 1.0):
        assert remote.read(key=[one], as_of_step=1).read_all()["id"].to_pylist() == [1]
    with pytest.raises(BadOption, match="True is no int64"):
        remote.read(key=[True], as_of_step=1)


# --- FFQ's FetchShufflePartition --------------------------------------------------------------


@pytest.fixture
def one_part(root: str) -> tuple[ffq.Exchange, int, bytes]:
    exchange = write(root, rows(0, 9_000, width=100))
    query = exchange.steps()[0].body.query
    return exchange, query, exchange.fetch(query, 0, 3)


@pytest.mark.parametrize("credits", [1_000, 1 << 30], ids=["in pieces", "whole"])
def test_a_part_is_fetched_as_its_bytes(
    connect: Any, one_part: tuple[ffq.Exchange, int, bytes], credits: int
) -> None:
    exchange, query, data = one_part
    assert len(data) > 1 << 17
    remote = connect({"x": exchange.root}, server_credits=credits, max_readers=1).exchange("x")
    assert remote.fetch(query, 0, 3) == data
    assert remote.fetch(query, 0, 3, attempt=1, chunk_bytes=1_000) == data
    for start, length in [(0, 1), (7, 100_000), (len(data) - 3, 9), (len(data) + 5, 0), (100, 0)]:
        end = start + length if length else len(data)
        found = remote.fetch(query, 0, 3, start_offset=start, max_bytes=length)
        assert found == data[start:end]


@pytest.mark.part_files
@pytest.mark.parametrize("credits", [1_000, 1 << 30], ids=["in pieces", "whole"])
def test_a_damaged_part_is_not_fetched(
    connect: Any, one_part: tuple[ffq.Exchange, int, bytes], credits: int
) -> None:
    exchange, query, data = one_part
    (part,) = exchange.parts(partitions=3)["file"].to_pylist()
    path = Path(exchange.root, part)
    path.write_bytes(data.replace(b"0" * 50, b"1" * 50, 1))
    remote = connect({"x": exchange.root}, server_credits=credits, max_readers=1).exchange("x")
    for ask in (
        lambda: exchange.fetch(query, 0, 3),
        lambda: remote.fetch(query, 0, 3),
        lambda: remote.fetch(query, 0, 3, max_bytes=10),
        lambda: remote.fetch_batches(query, 0, 3),
    ):
        with pytest.raises(CorruptPart, match="checksum mismatch"):
            ask()


def test_chunks_are_of_64_kib(connect: Any, one_part: tuple[ffq.Exchange, int, bytes]) -> None:
    exchange, query, data = one_part
    service = connect({"x": exchange.root})
    ticket = {"kind": "fetch", "exchange": "x", "query": query, "map_task": 0, "reduce": 3}
    chunks = [
        chunk
        for batch in service.stream(json.dumps(ticket).encode())
        for chunk in batch.column("payload").to_pylist()
    ]
    assert b"".join(chunks) == data
    assert {len(chunk) for chunk in chunks[:-1]} == {64 << 10}


@pytest.mark.parametrize("payload", ["arrow", "ffqs"])
def test_a_part_is_fetched_as_batches(connect: Any, root: str, payload: str) -> None:
    exchange = write(root, rows(0, 1_000), payload=payload)
    query = exchange.steps()[0].body.query
    remote = connect({"x": root}).exchange("x")
    found = remote.fetch_batches(query, 0, 3)
    assert sorted_rows(found) == sorted_rows(exchange.read(partitions=3).read_all())


def test_an_attempt_that_is_not_registered_is_a_failed_precondition_in_ffqs_words(
    connect: Any, one_part: tuple[ffq.Exchange, int, bytes]
) -> None:
    exchange, query, _ = one_part
    service = connect({"x": exchange.root})
    with pytest.raises(NotRegistered, match="map output not registered for requested attempt"):
        service.exchange("x").fetch(query, 0, 3, attempt=2)
    ticket = {"exchange": "x", "query": query, "stage": 0, "map_task": 0, "attempt": 2, "reduce": 3}
    with Caller(service.port) as caller:
        code, text, rich = caller.do_get(json.dumps({"kind": "fetch", **ticket}).encode())
    assert code is grpc.StatusCode.UNKNOWN and "map output not registered" in text
    assert rich[:2] == bytes([0x08, grpc.StatusCode.FAILED_PRECONDITION.value[0]])
    assert b"map output not registered for requested attempt" in rich


# --- errors -----------------------------------------------------------------------------------

WRONG: list[tuple[type[FfqError], Callable[[Any], Any]]] = [
    (ExchangeNotFound, lambda s: s.exchange("none").read()),
    (ExchangeNotFound, lambda s: s.exchange("x/none").read()),
    (StepNotFound, lambda s: s.exchange("x").read(as_of_step=9)),
    (KeyColumnMissing, lambda s: s.exchange("x").read(columns=["none"])),
    (PartitionNotFound, lambda s: s.exchange("x").read(partitions=PARTITIONS)),
    (PartitionNotFound, lambda s: s.exchange("x").fetch(s.number, 0, PARTITIONS)),
    (BadOption, lambda s: s.exchange("x").read(steps="9..1")),
    (BadOption, lambda s: s.exchange("x").lookup("five")),
    (BadOption, lambda s: s.exchange("x").read(steps="1", as_of_step=1)),
    (BadRequest, lambda s: s.action("NoSuchAction", {})),
    (BadRequest, lambda s: s.action("Check", {"exchange": "x", "more": 1})),
    (BadRequest, lambda s: list(s.stream(b"\x80"))),
]


@pytest.mark.parametrize(("kind", "ask"), WRONG, ids=lambda v: getattr(v, "__name__", ""))
def test_an_error_arrives_as_what_it_was(
    connect: Any, root: str, kind: type[FfqError], ask: Callable[[Any], Any]
) -> None:
    exchange = write(root, rows(0, 100))
    service = connect({"x": root})
    service.number = exchange.steps()[0].body.query
    with pytest.raises(kind) as caught:
        ask(service)
    text = str(caught.value)
    assert text.startswith(f"[{kind.code}] ") and root not in text
    assert "Traceback" not in text and text.count(kind.remedy or text) == 1


def test_status_codes_are_ffqs(connect: Any, root: str) -> None:
    exchange = write(root, rows(0, 100))
    path = next(Path(root).glob("shuffle/*/*/*/*/part-*.ipc"), None) or next(
        Path(root).glob("shuffle/*/*/*/*/parts.ipc")
    )
    service = connect({"x": root})
    (ticket,) = service.exchange("x").tasks()
    path.write_bytes(b"x" * path.stat().st_size)
    wrong_key = {"kind": "task", "exchange": "x", "first": 0, "count": 1, "check": 0, "key": ["a"]}
    with Caller(service.port) as caller:
        for data, code, name in [
            (b"{", grpc.StatusCode.INVALID_ARGUMENT, "FFQ_BAD_REQUEST"),
            (json.dumps(wrong_key).encode(), grpc.StatusCode.INVALID_ARGUMENT, "FFQ_BAD_OPTION"),
            (ticket, grpc.StatusCode.INTERNAL, "FFQ_CORRUPT_PART"),
        ]:
            found, text, _ = caller.do_get(data)
            assert found is code and f"[{name}]" in text
            # Neither where the service lies, nor where its exchanges do.
            assert "Traceback" not in text and os.path.dirname(ffq.__file__) not in text
            assert root not in text
    assert exchange.root == root
