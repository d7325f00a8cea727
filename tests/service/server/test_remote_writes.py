"""Producers outside Spark begin queries and upload map outputs, each by one attempt."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from service_scene import PARTITIONS, SCHEMA, begin, rows, write

import ffq_spark as ffq
from ffq_spark.errors import (
    AttemptExists,
    BadCommit,
    BadOption,
    BadRequest,
    ExchangeMismatch,
    FfqError,
    QueryNotFound,
    UnsupportedType,
)
from ffq_spark.exchange.write.shared_write import SharedWrite
from ffq_spark.service.client.connection import Connection
from ffq_spark.service.client.write import RemoteWrite


def test_map_outputs_of_many_producers_become_one_step(service: Connection, root: str) -> None:
    step = begin(service)
    with pytest.raises(FfqError):
        service.exchange("made").read()
    done = []
    producers = [
        threading.Thread(target=lambda m=m: done.append(step.put(m, [rows(m * 100, 100)])))
        for m in range(6)
    ]
    for producer in producers:
        producer.start()
    for producer in producers:
        producer.join()
    assert sorted((d["map_task"], d["attempt"], d["rows"]) for d in done) == [
        (m, 1, 100) for m in range(6)
    ]
    assert step.commit(map_tasks=6)["step"] == 1
    exchange = ffq.Exchange(root)
    assert exchange.verify().ok and exchange.info().rows == 600
    assert sorted(exchange.read().read_all()["id"].to_pylist()) == list(range(600))
    assert exchange.lookup(42).num_rows == 1
    expected = write(root + "-local", rows(0, 600))
    placed = {"columns": ["id"], "metadata_columns": True}
    partitions = [
        {row["id"]: row["_ffq_partition"] for row in e.read(**placed).read_all().to_pylist()}
        for e in (exchange, expected)
    ]
    assert partitions[0] == partitions[1]


def test_a_column_of_long_repeated_texts_is_sent_in_batches_within_the_limit(
    service: Connection, root: str
) -> None:
    """The client measures a batch as the server does: without its dictionary."""
    texts = pa.array(["x" * 100_000, "y"]).dictionary_encode().take(pa.array([0, 1] * 800))
    batch = pa.record_batch({"id": range(1_600), "text": texts})
    step = service.exchange("made").begin(batch.schema, keys="id", partitions=2)
    assert step.put(0, [batch])["rows"] == 1_600
    step.commit(1)
    table = ffq.Exchange(root).read(columns=["text"]).read_all()
    assert table.nbytes > 79_000_000 and set(table["text"].to_pylist()) == {"x" * 100_000, "y"}


def test_of_several_attempts_the_newest_registered_one_counts(
    service: Connection, root: str
) -> None:
    step = begin(service)
    step.put(0, [rows(0, 10)])
    step.put(0, [rows(0, 20)])
    assert step.put(0, [rows(0, 30)])["attempt"] == 3
    step.commit(1)
    assert ffq.Exchange(root).info().rows == 30
    states = [(s.attempt, s.state) for s in ffq.Exchange(root).attempts()]
    assert states == [(1, "stale"), (2, "stale"), (3, "registered")]
    report = ffq.Exchange(root).gc(ttl=0)
    assert report.attempts == 2
    assert ffq.Exchange(root).verify().ok and ffq.Exchange(root).info().rows == 30


def test_an_attempt_is_written_by_one_upload_alone(service: Connection) -> None:
    step = begin(service)
    step.put(0, [rows(0, 10)], attempt=7)
    with pytest.raises(AttemptExists, match=r"attempt 7 of map task 0 exists.* Give attempt 0 for"):
        step.put(0, [rows(0, 10)], attempt=7)
    assert step.put(0, [rows(0, 10)])["attempt"] == 8


def test_an_upload_that_breaks_off_is_never_read(service: Connection, root: str) -> None:
    step = begin(service)

    def breaking() -> Iterator[pa.RecordBatch]:
        yield from (rows(n * 1000, 1000) for n in range(200))
        raise KeyError("the producer dies")

    with pytest.raises(KeyError):
        step.put(0, breaking())
    with pytest.raises(BadCommit, match="map task 0 of 1 has no registered output") as caught:
        step.commit(1)
    assert str(caught.value).endswith(". Upload or register it, then repeat the commit")
    step.put(0, [rows(0, 5)])
    step.commit(1)
    assert ffq.Exchange(root).read().read_all().num_rows == 5


@pytest.mark.parametrize(
    "error", [OSError("its disk"), pa.ArrowInvalid("its rows"), ValueError("its own"), KeyError()]
)
@pytest.mark.parametrize("count", [0, 1, 50])
def test_an_error_of_the_callers_own_batches_comes_back_as_itself(
    service: Connection, root: str, error: Exception, count: int
) -> None:
    def breaking() -> Iterator[pa.RecordBatch]:
        yield from (rows(n * 1000, 1000) for n in range(count))
        raise error

    step = begin(service)
    with pytest.raises(type(error)) as caught:
        step.put(0, breaking())
    assert caught.value is error
    with pytest.raises(ExchangeMismatch, match="a batch has the columns id int64, not id int64, g"):
        step.put(0, [rows(0, 1000), rows(0, 5).select(["id"])])
    step.put(0, [rows(0, 5)])
    assert step.commit(1)["rows"] == 5


def test_rows_that_do_not_fit_are_refused_before_and_while_they_come(
    service: Connection, root: str
) -> None:
    write(root, rows(0, 10))
    exchange = service.exchange("made")
    with pytest.raises(ExchangeMismatch):
        exchange.begin(pa.schema([("id", pa.string())]), keys="id", partitions=PARTITIONS)
    with pytest.raises(ExchangeMismatch):
        exchange.begin(SCHEMA, keys="id", partitions=3)
    step = exchange.begin(SCHEMA)
    other = pa.record_batch({"id": [1], "other": ["x"]})
    with pytest.raises(ExchangeMismatch):
        RemoteWrite(service, "made", step.query, other.schema).put(0, [other])


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (BadRequest, {"initiator": "me"}),
        (BadRequest, {"unsafeCommit": "true"}),
        (BadRequest, {"storage.key": "k"}),
        (BadRequest, {"path": "/etc"}),
        (BadOption, {"partitions": "0"}),
        (BadOption, {"partitions": "4"}),
        (BadOption, {"streamId": "x"}),
    ],
    ids=str,
)
def test_options_of_a_producer_are_its_own(
    service: Connection, kind: type[FfqError], options: dict[str, str]
) -> None:
    with pytest.raises(kind):
        service.exchange("made").begin(SCHEMA, **options)


def test_a_type_that_arrow_cannot_arrange_is_not_supported(
    service: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow has functions for most types only, such as views, and their number grows."""

    def fail(*arguments: object) -> None:
        raise pa.ArrowNotImplementedError("array_take has no kernel for string_view")

    step = begin(service)
    monkeypatch.setattr(SharedWrite, "put", fail)
    with pytest.raises(UnsupportedType, match="array_take has no kernel for string_view"):
        step.put(0, [rows(0, 10)])


def test_a_query_that_nobody_began_takes_nothing(service: Connection, root: str) -> None:
    local = write(root, rows(0, 10))
    for query in (5, local.steps()[0].body.query):
        step = RemoteWrite(service, "made", query, SCHEMA)
        for ask in (lambda s=step: s.put(0, [rows(0, 1)]), lambda s=step: s.commit(1)):
            with pytest.raises(QueryNotFound):
                ask()


def test_a_server_that_is_started_anew_goes_on(root: str) -> None:
    options = {"port": 0, "writable": True}
    with ffq.serve({"made": root}, **options) as first:
        step = begin(ffq.connect(first.url))
        step.put(0, [rows(0, 10)])
    with ffq.serve({"made": root}, **options) as second:
        again = RemoteWrite(ffq.connect(second.url), "made", step.query, SCHEMA)
        again.put(1, [rows(10, 10)])
        assert again.commit(2)["rows"] == 20


def test_the_schema_is_taken_strictly(service: Connection) -> None:
    for schema in ("", "AAAA", "no base64!", "/////w=="):
        with pytest.raises(BadRequest):
            service.action("BeginQuery", {"exchange": "made", "schema": schema})
    nested = pa.schema([("k", pa.struct([("name", pa.int64())]))])
    damaged = nested.serialize().to_pybytes().replace(b"name", b"nam\xff")
    with pytest.raises(BadRequest, match="not an Arrow schema"):
        schema = base64.b64encode(damaged).decode()
        service.action("BeginQuery", {"exchange": "made", "schema": schema})
    body = json.dumps({"exchange": "made"}).encode()
    assert b"schema" not in body
    with pytest.raises(BadRequest, match="needs `schema`"):
        service.action("BeginQuery", {"exchange": "made"})
