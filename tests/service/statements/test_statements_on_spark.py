"""Statements on Spark for callers: states, results of any size, cancel, time-outs, limits."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from service_scene import PARTITIONS, Peak, rows, sorted_rows, token_file, until, write

import ffq_spark as ffq
from ffq_spark.errors import (
    BadRequest,
    Canceled,
    FfqError,
    Forbidden,
    QueryFailed,
    QueryNotFound,
    Unavailable,
    Unsupported,
)
from ffq_spark.format.ids import new_query
from ffq_spark.service.client.connection import Connection
from ffq_spark.service.client.write import RemoteWrite

pytestmark = pytest.mark.spark

# Runs until it is canceled.
ENDLESS = "select count(*) from range(0, 1000000000000, 1, 2) where id % 7 = hash(id) % 11"


@pytest.fixture(autouse=True)
def no_results_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Check that services remove the temporary directories of their results."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    yield
    assert not list(place.glob("ffq-results-*"))


@pytest.fixture
def service(spark: Any, tmp_path: Path) -> Iterator[Connection]:
    options = {"port": 0, "sql": True, "max_queries": 2, "max_queued": 1, "drain_seconds": 5}
    served = ffq.serve({"x": str(tmp_path / "x")}, spark=spark, writable=True, **options)
    with served, ffq.connect(served.url) as connection:
        yield connection


def busy(spark: Any) -> list[int]:
    """Return the active jobs of Spark."""
    return list(spark.sparkContext.statusTracker().getActiveJobsIds())


def test_a_query_is_run_and_its_rows_are_streamed(service: Connection) -> None:
    query = service.submit("select id, id * 2 as twice from range(0, 100000, 1, 4) order by id")
    assert query.wait()["state"] == "SUCCEEDED"
    table = query.result().read_all()
    assert table["id"].to_pylist() == list(range(100_000))
    assert table["twice"].to_pylist() == list(range(0, 200_000, 2))
    assert query.status() == {**query.status(), "code": 3, "owner": "anybody", "message": ""}
    ticket = json.dumps({"kind": "results", "query": query.query}).encode()
    assert sum(batch.num_rows for batch in service.stream(ticket)) == 100_000


def test_a_view_is_read_by_its_name(spark: Any, service: Connection) -> None:
    spark.range(10).createOrReplaceTempView("ten")
    assert service.submit(view="ten").result().read_all().num_rows == 10
    for wrong in ("parquet.`/etc/passwd`", "text.x", "a b", "", "ten; drop table x"):
        with pytest.raises(BadRequest):
            service.submit(view=wrong)
    status = service.submit(view="none").wait()
    assert status["state"] == "FAILED" and "TABLE_OR_VIEW_NOT_FOUND" in status["message"]


def test_a_result_without_rows_has_its_columns(service: Connection) -> None:
    table = service.submit("select 1 as a, 'x' as b where false").result().read_all()
    assert table.num_rows == 0 and table.schema.names == ["a", "b"]


def test_a_query_that_fails_says_why(service: Connection) -> None:
    for sql, reason in [
        ("select * from no_such_table", "TABLE_OR_VIEW_NOT_FOUND"),
        ("selec", "PARSE_SYNTAX_ERROR"),
        ("select raise_error('on purpose')", "on purpose"),
        ("select 1 as a, 2 as a", "FFQ_BAD_OPTION"),
    ]:
        query = service.submit(sql)
        status = query.wait()
        assert status["state"] == "FAILED" and reason in status["message"], status
        assert "JVM stacktrace" not in status["message"] and "\tat " not in status["message"]
        with pytest.raises(QueryFailed):
            query.result()


def test_a_canceled_query_frees_spark_and_stays_canceled(spark: Any, service: Connection) -> None:
    query = service.submit(ENDLESS)
    until(lambda: busy(spark))
    assert query.status()["state"] == "RUNNING"
    status = query.cancel("enough")
    assert (status["state"], status["message"]) == ("CANCELED", "enough")
    until(lambda: not busy(spark))
    assert query.cancel("again")["message"] == "enough"
    assert query.status()["state"] == "CANCELED"
    with pytest.raises(Canceled, match="enough"):
        query.result()
    until(lambda: service.health()["queries"] == {"QUEUED": 0, "RUNNING": 0})


# More tasks than cores, each of which keeps its core for a minute.
NAPS = {
    "JVM": "select java_method('java.lang.Thread', 'sleep', 60000L) as a from range(0, 16, 1, 16)",
    "Python": "select nap(id) as a from range(0, 16, 1, 16)",
}


def cores_in_use(spark: Any) -> int:
    executors = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    return sum(executor.numRunningTasks() for executor in executors)


def seconds_to_free_spark(spark: Any, service: Connection, sql: str) -> float:
    """Return the seconds from a cancel until Spark has no job and no busy core."""

    def nap(number: int) -> int:
        time.sleep(60)
        return number

    spark.udf.register("nap", nap, "long")
    query = service.submit(sql)
    until(lambda: cores_in_use(spark) == 2)
    # By now the Python workers have received their rows.
    time.sleep(1)
    started = time.monotonic()
    query.cancel("enough")
    until(lambda: not busy(spark) and not cores_in_use(spark))
    taken = time.monotonic() - started
    until(lambda: service.health()["queries"] == {"QUEUED": 0, "RUNNING": 0})
    assert query.status()["state"] == "CANCELED"
    return taken


@pytest.mark.parametrize("kind", NAPS)
def test_a_cancel_frees_the_cores(spark: Any, service: Connection, kind: str) -> None:
    assert seconds_to_free_spark(spark, service, NAPS[kind]) < 30


@pytest.mark.soak
@pytest.mark.parametrize("kind", NAPS)
def test_a_cancel_frees_the_cores_within_5_seconds(
    spark: Any, service: Connection, kind: str
) -> None:
    taken = [seconds_to_free_spark(spark, service, NAPS[kind]) for _ in range(5)]
    print(f"{kind}: {min(taken):.2f} to {max(taken):.2f} s")
    assert max(taken) < 5


def test_a_result_larger_than_the_credits_is_streamed(spark: Any, root: str) -> None:
    """Neither the server nor the driver holds the whole result."""
    # The memory that allocators keep varies by 30 MiB between runs, for any size of the result.
    credits, limit = 8 << 20, 72 << 20
    sql = "select id, repeat(md5(string(id)), 8) as text from range(0, 900000, 1, 8)"
    options = {"port": 0, "sql": True, "server_credits": credits, "max_readers": 4}
    with ffq.serve({"x": root}, spark=spark, **options) as served:
        service = ffq.connect(served.url)
        assert service.submit("select 1 as a").result().read_all().num_rows == 1
        with Peak(os.getpid()) as memory:
            count = size = 0
            for batch in service.submit(sql).result():
                count += batch.num_rows
                size += batch.nbytes
        print(f"{(memory.peak - memory.before) / 2**20:.0f} MiB for {size / 2**20:.0f}")
        assert count == 900_000 and size > 3 * limit
        assert memory.peak - memory.before < limit


def test_queries_beyond_the_limits_are_queued_and_then_refused(
    spark: Any, service: Connection
) -> None:
    running = [service.submit(ENDLESS) for _ in range(2)]
    until(lambda: len(busy(spark)) == 2)
    queued = service.submit("select 1 as a")
    assert queued.status()["state"] == "QUEUED"
    with pytest.raises(Unavailable):
        service.submit("select 2")
    canceled = service.query(queued.query).cancel("not needed")
    assert canceled["state"] == "CANCELED"
    for query in running:
        query.cancel("done")
    until(lambda: service.health()["queries"] == {"QUEUED": 0, "RUNNING": 0})
    assert queued.status()["state"] == "CANCELED"
    assert service.submit("select 3 as a").result().read_all().to_pylist() == [{"a": 3}]


def test_a_query_that_takes_too_long_fails(spark: Any, root: str) -> None:
    with ffq.serve({"x": root}, spark=spark, port=0, sql=True, query_timeout=1) as served:
        query = ffq.connect(served.url).submit(ENDLESS)
        status = query.wait()
        assert status["state"] == "FAILED" and "FFQ_TIMED_OUT" in status["message"]
        until(lambda: not busy(spark))


def test_a_server_that_stops_ends_its_queries_and_another_knows_how(
    spark: Any, root: str, tmp_path: Path
) -> None:
    options = {"port": 0, "sql": True, "results_root": str(tmp_path / "results")}
    with ffq.serve({"x": root}, spark=spark, drain_seconds=0, **options) as first:
        service = ffq.connect(first.url)
        done = service.submit("select 7 as a")
        done.wait()
        running = service.submit(ENDLESS)
        until(lambda: busy(spark))
    until(lambda: not busy(spark))
    # A statement of a killed server: it was submitted, and no process will end it.
    lost = new_query()
    record = json.dumps({"query": lost, "owner": "anybody", "submitted_at_ms": 1})
    (tmp_path / "results" / f"{lost}.submitted.json").write_text(record)
    with ffq.serve({"x": root}, spark=spark, **options) as second:
        service = ffq.connect(second.url)
        assert service.query(done.query).result().read_all().to_pylist() == [{"a": 7}]
        assert service.query(running.query).status()["state"] == "CANCELED"
        for _ in range(2):
            status = service.query(lost).status()
            assert status["state"] == "FAILED" and "is gone" in status["message"]


def test_results_are_removed_after_their_time(spark: Any, root: str, tmp_path: Path) -> None:
    results = tmp_path / "results"
    options = {"port": 0, "sql": True, "results_root": str(results), "results_ttl": 1}
    with ffq.serve({"x": root}, spark=spark, **options) as served:
        query = ffq.connect(served.url).submit("select 7 as a")
        query.wait()
        until(lambda: not list(results.iterdir()))
        with pytest.raises(QueryNotFound):
            query.status()


def test_results_are_their_owners_alone(spark: Any, root: str, tmp_path: Path) -> None:
    path, secrets = token_file(
        tmp_path,
        one=(["read", "write"], None),
        two=(["read", "write", "cancel"], None),
        bound=(["read", "write"], ["x"]),
    )
    options = {"port": 0, "sql": True, "tokens": path, "writable": True}
    with ffq.serve({"x": root}, spark=spark, **options) as served:
        one, two, bound = (ffq.connect(served.url, secret) for secret in secrets.values())
        query = one.submit("select 7 as a")
        assert query.result().read_all().num_rows == 1
        ticket = json.dumps({"kind": "results", "query": query.query}).encode()
        exchange, schema = f"results/{query.query}", pa.schema([("a", pa.int32())])
        own, others = one.exchange(exchange), two.exchange(exchange)
        (part,) = own.read(metadata_columns=True).read_all().to_pylist()
        place = part["_ffq_query"], part["_ffq_map_task"], part["_ffq_partition"]
        assert own.fetch_batches(*place).to_pylist() == [{"a": 7}]
        assert list(own.check()) == [place[0]]
        for ask in (
            lambda: two.query(query.query).result(),
            lambda: list(two.stream(ticket)),
            others.read,
            lambda: others.fetch(*place),
            lambda: others.fetch_batches(*place),
            others.check,
            lambda: others.status(place[0]),
            lambda: others.cancel(place[0], "not mine"),
            lambda: others.begin(schema),
            lambda: RemoteWrite(two, exchange, place[0], schema).put(0, []),
            lambda: RemoteWrite(two, exchange, place[0], schema).register(0, 1),
            lambda: RemoteWrite(two, exchange, place[0], schema).heartbeat(),
            lambda: RemoteWrite(two, exchange, place[0], schema).commit(1),
            lambda: RemoteWrite(two, exchange, place[0], schema).abort(),
            lambda: own.begin(schema),
            lambda: bound.submit("select 1"),
            lambda: bound.query(query.query).status(),
            lambda: query.cancel("without the scope"),
        ):
            with pytest.raises(Forbidden):
                ask()
        assert one.exchanges() == []
        running = one.submit(ENDLESS)
        assert two.query(running.query).cancel("by two")["state"] == "CANCELED"


def test_who_may_only_cancel_learns_no_more_than_the_state(
    spark: Any, root: str, tmp_path: Path
) -> None:
    path, secrets = token_file(
        tmp_path, one=(["read", "write", "cancel"], None), ops=(["cancel"], None)
    )
    with ffq.serve({"x": root}, spark=spark, port=0, sql=True, tokens=path) as served:
        one, ops = (ffq.connect(served.url, secret) for secret in secrets.values())
        done = one.submit("select 7 as a")
        assert done.wait()["owner"] == "one"
        running = one.submit(ENDLESS)
        nothing = {"owner": None, "submitted_at_ms": None, "ended_at_ms": None}
        ended = {"query": done.query, "state": "SUCCEEDED", "code": 3, "message": ""}
        assert ops.query(done.query).cancel("too late") == {**ended, **nothing}
        status = ops.query(running.query).cancel("enough")
        assert status == {**status, "state": "CANCELED", "message": "enough", **nothing}
        # The owner sees who canceled it, and why.
        assert running.status()["message"] == "enough" and running.status()["owner"] == "one"
        again = running.cancel("mine")
        assert again["owner"] == "one" and again["ended_at_ms"] is not None
        with pytest.raises(Forbidden):
            ops.query(done.query).status()


def test_why_a_query_failed_is_told_to_its_owner_alone(
    spark: Any, root: str, tmp_path: Path
) -> None:
    scopes = ["read", "write", "cancel"]
    path, secrets = token_file(tmp_path, one=(scopes, None), two=(scopes, None))
    with ffq.serve({"x": root}, spark=spark, port=0, sql=True, tokens=path) as served:
        one, two = (ffq.connect(served.url, secret) for secret in secrets.values())
        query = one.submit("select raise_error('salary of Ada: 5')")
        assert "salary" in query.wait()["message"]
        others = two.query(query.query)
        assert others.status()["state"] == "FAILED"
        for status in (others.status(), others.cancel("to see what it says")):
            assert "salary" not in json.dumps(status)
        with pytest.raises(Forbidden) as caught:
            others.result()
        assert "salary" not in str(caught.value)
        assert "salary" in query.status()["message"]


def test_sql_is_taken_only_if_the_service_was_told_so(spark: Any, root: str) -> None:
    spark.range(3).createOrReplaceTempView("three")
    with ffq.serve({"x": root}, spark=spark, port=0) as served:
        service = ffq.connect(served.url)
        with pytest.raises(Forbidden, match="accepts no SQL"):
            service.submit("select 1")
        assert service.submit(view="three").result().read_all().num_rows == 3
        with pytest.raises(BadRequest):
            service.action("SubmitQuery", {"sql": "select 1", "view": "three"})
    with ffq.serve({"x": root}, port=0) as served, pytest.raises(Unsupported):
        ffq.connect(served.url).submit(view="three")


def test_spark_reads_what_producers_wrote_like_its_own(
    spark: Any, service: Connection, tmp_path: Path
) -> None:
    root = str(tmp_path / "x")
    write(root + "-own", rows(0, 300))
    batch = rows(0, 300)
    step: RemoteWrite = service.exchange("x").begin(batch.schema, keys="id", partitions=PARTITIONS)
    for map_task in range(3):
        step.put(map_task, [batch.slice(map_task * 100, 100)])
    step.commit(3)

    def read(place: str) -> Any:
        return spark.read.format("ffqshuffle").option("metadataColumns", "true").load(place)

    columns = ["id", "group", "name", "_ffq_partition"]
    actual, expected = (
        read(r).select(columns).orderBy("id").toArrow() for r in (root, root + "-own")
    )
    assert actual.to_pylist() == expected.to_pylist()
    assert read(root).where("id = 42").count() == 1
    wrong = read(root).where(f"_ffq_partition != pmod(hash(id), {PARTITIONS})")
    assert wrong.count() == 0
    more = spark.range(300, 310).selectExpr("id", "id % 7 as group", "string(id) as name")
    more.write.format("ffqshuffle").mode("append").save(root)
    assert service.exchange("x").read().read_all().num_rows == 310
    assert sorted_rows(service.exchange("x").lookup(305)) == [
        {"id": 305, "group": 4, "name": "305"}
    ]


def test_a_session_without_a_driver_here_is_refused(root: str) -> None:
    with pytest.raises(Unsupported):
        ffq.serve({"x": root}, spark=object(), port=0)


def test_errors_of_unknown_queries(service: Connection) -> None:
    for ask in (
        lambda: service.query(5).status(),
        lambda: service.query(5).cancel("x"),
        lambda: list(service.stream(b'{"kind": "results", "query": 5}')),
        lambda: service.exchange("results/5").read(),
        lambda: service.exchange("results").read(),
    ):
        with pytest.raises(FfqError) as caught:
            ask()
        assert caught.value.code == "FFQ_QUERY_NOT_FOUND"
