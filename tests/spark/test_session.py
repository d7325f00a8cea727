"""Finding and configuring the source in every kind of session."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from spark_rows import failure, files, part_files, read, rows, write

import ffq_spark as ffq

pytestmark = pytest.mark.spark

KEYED = {"keys": "k", "partitions": 4}


def frame(spark: Any) -> Any:
    return spark.range(0, 100, 1, 2).selectExpr("id", "id % 17 AS k")


def codecs(root: str) -> set[str]:
    """Return the compression codecs in the indexes of all map tasks."""
    used = set()
    for name in files(root, "shuffle"):
        if name.endswith("index.json"):
            index = json.loads(Path(root, name).read_text())
            used |= {entry["codec"] for entry in index["partitions"]}
    return used


def in_thread(work: Callable[[], Any]) -> Any:
    """Run work in a new Python thread; return its result or raise its error."""
    results: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def test_the_source_is_found_without_any_registration(spark: Any, root: str) -> None:
    """Spark finds the source by its module's name; no earlier test of this module registers it."""
    write(frame(spark), root, **KEYED)
    assert rows(read(spark, root)) == rows(frame(spark))
    other = spark.newSession()
    assert rows(read(other, root)) == rows(frame(spark))


def test_registering_works_in_a_session_and_in_its_new_sessions(spark: Any, root: str) -> None:
    """`register` may be called twice; a new session finds the source with and without it."""
    first, second = spark.newSession(), spark.newSession()
    ffq.register(first)
    ffq.register(first)
    write(frame(first), root, **KEYED)
    write(frame(second), root)
    ffq.register(second)
    assert read(first, root).count() == 200
    assert read(second, root).count() == 200


def test_conf_reaches_the_source_after_registering(spark: Any, new_root: Any) -> None:
    """`spark.ffq.*` takes effect at `register`, only in that session; options override it."""
    session = spark.newSession()
    session.conf.set("spark.ffq.compression", "zstd")
    session.conf.set("spark.ffq.payload", "ffqs")
    ffq.register(session)
    by_conf, by_option, elsewhere = new_root(), new_root(), new_root()
    write(frame(session), by_conf, **KEYED)
    write(frame(session), by_option, **KEYED, compression="lz4")
    write(frame(spark), elsewhere, **KEYED, payload="ffqs")
    assert codecs(by_conf) == {"zstd"}
    assert codecs(by_option) == {"lz4"}
    assert codecs(elsewhere) == {"none"}
    session.conf.set("spark.ffq.compression", "none")
    ffq.register(session)
    write(frame(session), by_conf)
    assert codecs(by_conf) == {"none", "zstd"}


def test_conf_of_reads_is_used_and_overridden(spark: Any, root: str) -> None:
    write(frame(spark), root, **KEYED)
    session = spark.newSession()
    session.conf.set("spark.ffq.minTasks", "4")
    ffq.register(session)
    assert read(session, root).rdd.getNumPartitions() == 4
    assert read(session, root, minTasks=2).rdd.getNumPartitions() == 2
    session.conf.set("spark.ffq.verify", "sometimes")
    ffq.register(session)
    message = failure(lambda: read(session, root))
    assert "FFQ_BAD_OPTION" in message
    assert "verify='sometimes'" in message


def test_a_second_thread_reads_as_it_is(spark: Any, root: str) -> None:
    write(frame(spark), root, **KEYED)
    assert in_thread(lambda: rows(read(spark, root))) == rows(frame(spark))


def test_a_second_thread_writes_once_its_session_is_active(spark: Any, root: str) -> None:
    """Spark looks up a sink in the thread's active session, and a new thread has none.

    `spark.createDataFrame` is the public call that makes a session active in a thread.
    """

    def work() -> None:
        spark.createDataFrame([], "any INT")
        write(frame(spark), root, **KEYED)

    in_thread(work)
    assert rows(read(spark, root)) == rows(frame(spark))


def test_a_session_registered_in_a_thread_can_write_there(spark: Any, root: str) -> None:
    """`register` makes the source usable in the thread that calls it."""

    def work() -> None:
        ffq.register(spark)
        write(frame(spark), root, **KEYED)

    in_thread(work)
    assert rows(read(spark, root)) == rows(frame(spark))


@pytest.fixture
def bucket(s3: Any, tmp_path: Path) -> str:
    return f"s3://{s3.bucket}/{tmp_path.name}"


def test_an_object_store_is_reached_by_storage_options(spark: Any, s3: Any, bucket: str) -> None:
    """Append, overwrite and filter on a real S3 server, and read the rows without Spark."""
    options = s3.spark_options
    write(frame(spark), bucket, **KEYED, **options)
    write(frame(spark), bucket, **options)
    assert rows(read(spark, bucket, **options)) == rows(frame(spark).union(frame(spark)))
    write(frame(spark), bucket, mode="overwrite", **options)
    assert rows(read(spark, bucket, **options)) == rows(frame(spark))
    filtered = read(spark, bucket, **options).where("k = 5")
    assert rows(filtered) == rows(frame(spark).where("k = 5"))
    exchange = ffq.Exchange(bucket, s3.storage_options)
    assert exchange.read().read_all().num_rows == 100
    assert exchange.verify().ok


def test_storage_options_may_come_from_the_session(spark: Any, s3: Any, bucket: str) -> None:
    """With `spark.ffq.storage.*`, no call needs to contain secrets."""
    session = spark.newSession()
    for name, value in s3.spark_options.items():
        session.conf.set(f"spark.ffq.{name}", value)
    ffq.register(session)
    write(frame(session), bucket.replace("s3:", "s3a:"), **KEYED)
    assert rows(read(session, bucket)) == rows(frame(session))


def test_the_secret_appears_nowhere(
    spark: Any, s3: Any, bucket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No file of the exchange, no plan and no error contains the secret."""
    import s3fs

    options = s3.spark_options
    write(frame(spark), bucket, **KEYED, **options)
    filtered = read(spark, bucket, **options).where("k = 5")
    filtered.explain(True)
    filtered.explain("formatted")
    plan = capsys.readouterr().out
    assert "ffqshuffle" in plan
    assert s3.secret not in plan
    store = s3fs.S3FileSystem(**s3.storage_options, skip_instance_cache=True)
    stored = store.find(bucket)
    assert len(stored) > 8
    assert [name for name in stored if s3.secret.encode() in store.cat_file(name)] == []
    wrong = {**options, "storage.secret": "wrong-secret-value"}
    message = failure(lambda: read(spark, bucket, **wrong))
    assert "FFQ_STORE_FAILED" in message
    assert "wrong-secret-value" not in message
    message = failure(lambda: read(spark, bucket, **options, step="1"))
    assert "FFQ_UNKNOWN_OPTION" in message
    assert s3.secret not in message


def test_parts_of_several_roots_do_not_mix(spark: Any, new_root: Any) -> None:
    """Two exchanges read in one query keep their own rows, columns and placement."""
    one, two = new_root(), new_root()
    write(frame(spark), one, **KEYED)
    write(frame(spark).selectExpr("id * 2 AS id", "k"), two, keys="id", partitions=3)
    assert part_files(one) and part_files(two)
    joined = read(spark, one).join(read(spark, two), "id").count()
    assert joined == 50
