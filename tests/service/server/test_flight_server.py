"""Listing, flight infos, limits of requests, and errors as status codes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pyarrow.flight as flight
import pytest
from service_scene import MANY, PARTITIONS, Caller, rows, write

import ffq_spark as ffq
from ffq_spark.errors import (
    BadOption,
    BadRequest,
    ExchangeNotFound,
    FfqError,
    KeyColumnMissing,
    PartitionNotFound,
    StepNotFound,
)


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
    metadata = json.loads(info.app_metadata)
    assert metadata == {"step": 2, "keys": ["id"], "partitions": PARTITIONS}
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
            status, text, _ = caller.do_get(data)
            assert status is code and f"[{name}]" in text
            # Neither the service's own directory nor the roots of its exchanges appear.
            assert "Traceback" not in text and os.path.dirname(ffq.__file__) not in text
            assert root not in text
    assert exchange.root == root


def test_requests_and_uploads_that_are_too_large_are_refused(lake: Path) -> None:
    options = {"max_request_bytes": 2_000, "max_upload_bytes": 10_000, "writable": True}
    with ffq.serve({"x": str(lake / "other")}, port=0, **options) as service:
        connection = ffq.connect(service.url)
        for ask in (
            lambda: list(connection.stream(b"x" * 3_000)),
            lambda: connection.action("Check", {"exchange": "x" * 3_000}),
            lambda: connection.exchanges("x" * 3_000),
            lambda: connection.exchange("x").read(columns=["c" * 3_000]),
        ):
            with pytest.raises(BadRequest, match="exceeds the limit of"):
                ask()
        batch = rows(0, 2_000)
        upload = connection.exchange("x").begin(batch.schema)
        with pytest.raises(BadRequest, match="exceeds the limit of"):
            upload.put(0, [batch])
