"""Producers outside Spark: uploads and registered files become one whole step or none."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from layouts import write_options
from service_scene import PARTITIONS, rows, sorted_rows, write

import ffq_spark as ffq
from ffq_spark.errors import (
    BadCommit,
    BadOption,
    BadRequest,
    Canceled,
    CorruptPart,
    ExchangeMismatch,
    Fenced,
    FfqError,
    NoAttempts,
    QueryEnded,
    QueryNotFound,
    ReplayMismatch,
    StreamOwned,
)
from ffq_spark.exchange.write import map_outputs
from ffq_spark.exchange.write.attempt_writer import write_attempt
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.exchange.write.shared_write import SharedWrite
from ffq_spark.format import manifest, paths
from ffq_spark.format.paths import AttemptId
from ffq_spark.format.records import ExchangeRecord, QueryRecord
from ffq_spark.service.client.connection import Connection
from ffq_spark.service.client.write import RemoteWrite
from ffq_spark.store import Store

SCHEMA = rows(0, 1).schema


@pytest.fixture
def service(root: str) -> Iterator[Connection]:
    options = {"port": 0, "writable": True, "drain_seconds": 0, "lease_seconds": 60}
    with ffq.serve({"made": root}, **options) as served, ffq.connect(served.url) as connection:
        yield connection


def begin(service: Connection, **options: Any) -> RemoteWrite:
    given = {"keys": "id", "partitions": PARTITIONS, **options}
    return service.exchange("made").begin(SCHEMA, **given)


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


def test_a_step_is_appended_or_replaces(service: Connection, root: str) -> None:
    for mode, first in (("append", 0), ("append", 100), ("replace", 200)):
        step = service.exchange("made").begin(SCHEMA, mode, keys="id", partitions=PARTITIONS)
        step.put(0, [rows(first, 100)])
        step.commit(1)
    assert sorted(ffq.Exchange(root).read().read_all()["id"].to_pylist()) == list(range(200, 300))
    assert ffq.Exchange(root).read(as_of_step=2).read_all().num_rows == 200


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
    with pytest.raises(Fenced, match="attempt 7 of map task 0 is taken"):
        step.put(0, [rows(0, 10)], attempt=7)
    assert step.put(0, [rows(0, 10)])["attempt"] == 8


def test_an_upload_that_breaks_off_is_never_read(service: Connection, root: str) -> None:
    step = begin(service)

    def breaking() -> Iterator[pa.RecordBatch]:
        yield from (rows(n * 1000, 1000) for n in range(200))
        raise KeyError("the producer dies")

    with pytest.raises(KeyError):
        step.put(0, breaking())
    with pytest.raises(BadCommit, match="map task 0 of 1 has no registered output"):
        step.commit(1)
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


def test_two_calls_of_one_commit_give_one_answer(root: str) -> None:
    """The second call begins before the first has ended, and finds its own batch in the log."""

    class Behind(Store):
        """A store that hides the query's outcome from the first read."""

        looked = False

        def read_optional(self, path: str) -> bytes | None:
            hidden = path.endswith(".outcome.json") and not self.looked
            self.looked |= hidden
            return None if hidden else super().read_optional(path)

    options = {"keys": "id", "partitions": "2", "streamId": "s", "batch": "0"}
    upload = SharedWrite.begin(Store(root), SCHEMA, options)
    upload.put(0, [rows(0, 5)])
    steps = [SharedWrite.open(store(root), upload.query).commit(1) for store in (Store, Behind)]
    assert [step.step for step in steps if step] == [1, 1]


def test_a_commit_that_lost_its_batch_says_so_however_often_it_is_asked(root: str) -> None:
    """The query is committed but never becomes a step: another run of the batch was faster."""

    class Late(Store):
        """A store that hides the batch record until somebody tries to create it."""

        seen = False

        def read_optional(self, path: str) -> bytes | None:
            hidden = path == paths.stream_batch("s", 1, 0) and not self.seen
            return None if hidden else super().read_optional(path)

        def create_once(self, path: str, data: bytes) -> bool:
            self.seen |= path == paths.stream_batch("s", 1, 0)
            return super().create_once(path, data)

    options = {"keys": "id", "partitions": "2", "streamId": "s", "batch": "0"}
    for store, count in ((Store(root), 5), (Late(root), 7), (Late(root), 5)):
        upload = SharedWrite.begin(store, SCHEMA, options)
        upload.put(0, [rows(0, count)])
        if count == 7:
            for _ in range(2):
                with pytest.raises(ReplayMismatch, match="first 5 rows"):
                    upload.commit(1)
        else:
            first = store.__class__ is Store
            for _ in range(2):
                step = upload.commit(1)
                assert (step is not None) == first
    assert ffq.Exchange(root).info().rows == 5


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


def test_a_query_that_nobody_began_takes_nothing(service: Connection, root: str) -> None:
    local = write(root, rows(0, 10))
    for query in (5, local.steps()[0].body.query):
        step = RemoteWrite(service, "made", query, SCHEMA)
        for ask in (lambda s=step: s.put(0, [rows(0, 1)]), lambda s=step: s.commit(1)):
            with pytest.raises(QueryNotFound):
                ask()


# --- files that a producer wrote itself -------------------------------------------------------


def written(
    root: str, query: int, partitions: int = PARTITIONS, attempt: int = 1, **options: Any
) -> AttemptId:
    """Write an attempt to storage directly, like a producer without the service."""
    given = {"keys": ("id",), "partitions": partitions, **options}
    exchange = ExchangeRecord.of(SCHEMA, ("id",), partitions)
    record = QueryRecord(query, "me", 0, "append", 0)
    job = WriteJob.of(exchange, record, write_options(**given))
    return write_attempt(Store(root), job, 0, attempt, [rows(0, 100)]).id


@pytest.mark.parametrize("payload", ["arrow", "ffqs"])
@pytest.mark.parametrize("layout", ["parts", "packed"])
def test_files_are_registered_after_a_look_at_all_of_them(
    service: Connection, root: str, payload: str, layout: str
) -> None:
    step = begin(service)
    written(root, step.query, payload=payload, layout=layout)
    assert step.register(0, 1)["rows"] == step.register(0, 1)["rows"] == 100
    step.commit(1)
    exchange = ffq.Exchange(root)
    assert exchange.verify().ok and exchange.lookup(7).num_rows == 1
    expected = sorted_rows(pa.Table.from_batches([rows(0, 100)]))
    assert sorted_rows(exchange.read().read_all()) == expected
    assert all(c is not None for c in exchange.parts()["checksum"].to_pylist())


def test_files_that_are_not_there_or_not_whole_are_refused(service: Connection, root: str) -> None:
    step = begin(service)
    with pytest.raises(NoAttempts):
        step.register(0, 1)
    id = written(root, step.query)
    part = next(Path(root, id.directory).glob("*.ipc"))
    data = part.read_bytes()
    part.write_bytes(data[:-20])
    with pytest.raises(CorruptPart):
        step.register(0, 1)
    part.write_bytes(data)
    step.register(0, 1)


@pytest.mark.part_files
def test_files_with_what_is_no_text_are_refused(service: Connection, root: str) -> None:
    """The server computes the checksum itself, so it must validate the text in full."""
    step = begin(service)
    part = next(Path(root, written(root, step.query).directory).glob("*.ipc"))
    data = part.read_bytes()
    at = data.index(b"000000")
    part.write_bytes(data[:at] + b"\xff" + data[at + 1 :])
    with pytest.raises(CorruptPart, match="not valid Arrow data"):
        step.register(0, 1)


def test_rows_in_a_wrong_partition_are_refused(service: Connection, root: str) -> None:
    """A lookup reads only the partition of its key, and would miss such rows."""
    step = begin(service)
    written(root, step.query, partitions=PARTITIONS - 1)
    with pytest.raises(CorruptPart, match="belong to another partition"):
        step.register(0, 1)


def test_an_output_that_names_files_elsewhere_is_refused(service: Connection, root: str) -> None:
    other = write(root, rows(0, 10))
    step = begin(service)
    id = written(root, step.query)
    step.register(0, 1)
    theirs = AttemptId(other.steps()[0].body.query, 0, 0, 1)
    output = map_outputs.read_output(Store(root), id)
    assert output is not None
    table = manifest.decode(output.manifest, "output")
    files = [f.replace(id.directory, theirs.directory) for f in table["file"].to_pylist()]
    place = table.schema.get_field_index("file")
    stolen = table.set_column(place, table.schema.field(place), pa.array(files))
    Path(root, id.output).write_bytes(manifest.encode(stolen))
    with pytest.raises(BadCommit, match="names files elsewhere"):
        step.commit(1)
    assert ffq.Exchange(root).info().rows == 10


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
    body = json.dumps({"exchange": "made"}).encode()
    assert b"schema" not in body
    with pytest.raises(BadRequest, match="needs `schema`"):
        service.action("BeginQuery", {"exchange": "made"})
