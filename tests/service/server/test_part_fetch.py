"""FFQ's FetchShufflePartition: one part as raw bytes or as batches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from service_scene import Caller, rows, sorted_rows, write

import ffq_spark as ffq
from ffq_spark.errors import (
    CorruptPart,
    NotRegistered,
)


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
        fetched = remote.fetch(query, 0, 3, start_offset=start, max_bytes=length)
        assert fetched == data[start:end]


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
    fetched = remote.fetch_batches(query, 0, 3)
    assert sorted_rows(fetched) == sorted_rows(exchange.read(partitions=3).read_all())


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
