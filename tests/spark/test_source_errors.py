"""Every error reaches the Spark user with its code and the option or file concerned."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from spark_rows import decided, failure, files, part_files, read, rows, write

from ffq_spark import Exchange

pytestmark = pytest.mark.spark

KEYED = {"keys": "k", "partitions": 4}


def frame(spark: Any, count: int = 200) -> Any:
    return spark.range(0, count, 1, 2).selectExpr("id", "id % 17 AS k", "CAST(id AS STRING) AS s")


def assert_error(call: Callable[[], Any], *wanted: str) -> None:
    message = failure(call)
    for text in wanted:
        assert text in message


@pytest.fixture(scope="module")
def healthy(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    root = str(tmp_path_factory.mktemp("healthy") / "exchange")
    write(frame(spark), root, **KEYED)
    return root


# --- writes -----------------------------------------------------------------------------------

BAD_WRITES = {
    "unknown option": ({"partition": 4}, "FFQ_UNKNOWN_OPTION", "did you mean partitions?"),
    "unknown option in camel case": ({"sortby_": "k"}, "FFQ_UNKNOWN_OPTION", "sortBy?"),
    "no number": ({"partitions": "four"}, "FFQ_BAD_OPTION", "option partitions"),
    "no partitions": ({"partitions": 0}, "FFQ_BAD_OPTION", "option partitions"),
    "too many partitions": ({"partitions": 10_001}, "FFQ_BAD_OPTION", "option partitions"),
    "unknown hash": ({"hash": "md5"}, "FFQ_BAD_OPTION", "option hash"),
    "unknown compression": ({"compression": "gzip"}, "FFQ_BAD_OPTION", "option compression"),
    "unknown payload": ({"payload": "csv"}, "FFQ_BAD_OPTION", "option payload"),
    "no size": ({"maxBufferBytes": "lots"}, "FFQ_BAD_OPTION", "option maxBufferBytes"),
    "negative query": ({"query": -1}, "FFQ_BAD_OPTION", "option query"),
    "no boolean": ({"unsafeCommit": "perhaps"}, "FFQ_BAD_OPTION", "option unsafeCommit"),
    "empty key name": ({"keys": "k,,s"}, "FFQ_BAD_OPTION", "option keys"),
    "key twice": ({"keys": "k,k"}, "FFQ_BAD_OPTION", "option keys"),
    "missing key": ({"keys": "k,nokey"}, "FFQ_COLUMN_MISSING", "'nokey'", "option keys"),
    "missing sort column": ({"sortBy": "nosort"}, "FFQ_COLUMN_MISSING", "'nosort'", "sortBy"),
    "missing statistics": ({"statistics": "nostat"}, "FFQ_COLUMN_MISSING", "'nostat'"),
}


@pytest.mark.parametrize("case", BAD_WRITES)
def test_a_wrong_write_option_is_named_before_anything_is_written(
    spark: Any, root: str, case: str
) -> None:
    options, *wanted = BAD_WRITES[case]
    assert_error(lambda: write(frame(spark), root, **{**KEYED, **options}), *wanted)
    assert files(root) == []


def test_columns_of_one_name_are_refused(spark: Any, root: str) -> None:
    """Spark accepts frames with duplicate names, but no reader could tell the columns apart."""
    twice = frame(spark).selectExpr("id", "k", "s AS k")
    assert_error(
        lambda: write(twice, root, **KEYED), "FFQ_BAD_OPTION", "column names must be unique"
    )
    assert files(root) == []


MISMATCHES = {
    "keys": (["*"], {"keys": "id"}, "keys of"),
    "order of keys": (["*"], {"keys": "s,k"}, "keys of"),
    "partitions": (["*"], {"partitions": 8}, "partitions of"),
    "hash": (["*"], {"hash": "ffq"}, "hash of"),
    "a column less": (["id", "k"], {}, "s is string in the exchange, missing in the write"),
    "a column more": (
        ["*", "1 AS more"],
        {},
        "more is missing in the exchange, int32 in the write",
    ),
    "another type": (["id", "k", "id AS s"], {}, "s is string in the exchange, int64 in the write"),
    "another type of key": (
        ["id", "CAST(k AS INT) AS k", "s"],
        {},
        "k is int64 in the exchange, int32 in the write",
    ),
}


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("case", MISMATCHES)
def test_a_write_that_disagrees_with_the_exchange_is_refused(
    spark: Any, healthy: str, case: str, mode: str
) -> None:
    """The error says what differs, and no file of the exchange changes."""
    before = decided(healthy)
    columns, options, wanted = MISMATCHES[case]
    other = frame(spark).selectExpr(*columns)
    message = failure(lambda: write(other, healthy, mode, **options))
    for text in ("FFQ_EXCHANGE_MISMATCH", wanted, healthy):
        assert text in message
    assert decided(healthy) == before


def test_a_query_number_is_used_once(spark: Any, root: str) -> None:
    write(frame(spark), root, **KEYED, query=7)
    record = str(Path(root, "_ffq/queries/7.json"))
    assert_error(lambda: write(frame(spark), root, query=7), "FFQ_QUERY_EXISTS", record)
    assert rows(read(spark, root)) == rows(frame(spark))


def test_a_failing_task_leaves_nothing_visible(spark: Any, root: str) -> None:
    """The user's own error reaches the caller, and no row of the write is visible."""
    write(frame(spark), root, **KEYED)
    bad = frame(spark).selectExpr("id", "k", "IF(id = 150, RAISE_ERROR('boom'), s) AS s")
    assert_error(lambda: write(bad, root), "boom")
    assert rows(read(spark, root)) == rows(frame(spark))
    assert len(Exchange(root).steps()) == 1


# --- reads ------------------------------------------------------------------------------------

BAD_READS = {
    "unknown option": ({"step": "1"}, "FFQ_UNKNOWN_OPTION", "did you mean steps?"),
    "a write's option": ({"keys": "k"}, "FFQ_UNKNOWN_OPTION", "keys"),
    "no steps": ({"steps": "first"}, "FFQ_BAD_OPTION", "option steps"),
    "steps the wrong way round": ({"steps": "2..1"}, "FFQ_BAD_OPTION", "option steps"),
    "steps and a moment": ({"steps": "1", "asOfStep": 1}, "FFQ_BAD_OPTION", "asOfStep"),
    "moment zero": ({"asOfStep": 0}, "FFQ_BAD_OPTION", "option asOfStep"),
    "missing step": ({"steps": "2"}, "FFQ_STEP_NOT_FOUND", "there is no step 2"),
    "missing steps in a range": ({"steps": "1..3"}, "FFQ_STEP_NOT_FOUND", "there is no step 3"),
    "missing moment": ({"asOfStep": 9}, "FFQ_STEP_NOT_FOUND", "there is no step 9"),
    "no partition list": ({"partitions": "1;2"}, "FFQ_BAD_OPTION", "option partitions"),
    "missing partition": ({"partitions": "4"}, "FFQ_PARTITION_NOT_FOUND", "option partitions"),
    "missing column": ({"columns": "id,none"}, "FFQ_COLUMN_MISSING", "'none'", "option columns"),
    "unknown verify": ({"verify": "some"}, "FFQ_BAD_OPTION", "option verify"),
    "no boolean": ({"metadataColumns": "1"}, "FFQ_BAD_OPTION", "option metadataColumns"),
    "no tasks": ({"minTasks": 0}, "FFQ_BAD_OPTION", "option minTasks"),
    "bad attempt": ({"attempt": "best", "query": 1}, "FFQ_BAD_OPTION", "option attempt"),
}


@pytest.mark.parametrize("case", BAD_READS)
def test_a_wrong_read_option_is_named(spark: Any, healthy: str, case: str) -> None:
    options, *wanted = BAD_READS[case]
    assert_error(lambda: read(spark, healthy, **options).collect(), *wanted)


def test_a_root_without_an_exchange_is_named(spark: Any, root: str) -> None:
    assert_error(lambda: read(spark, root), "FFQ_EXCHANGE_NOT_FOUND", root)
    assert files(root) == []
    pathless = spark.read.format("ffqshuffle")
    assert_error(pathless.load, "FFQ_BAD_OPTION", "option path")


def test_a_root_with_only_a_failed_write_is_no_exchange(spark: Any, root: str) -> None:
    bad = frame(spark).selectExpr("id", "k", "IF(id = 150, RAISE_ERROR('boom'), s) AS s")
    assert_error(lambda: write(bad, root, **KEYED), "boom")
    assert_error(lambda: read(spark, root), "FFQ_EXCHANGE_NOT_FOUND", root)
    write(frame(spark), root, **KEYED)
    assert rows(read(spark, root)) == rows(frame(spark))


# --- versions of the format --------------------------------------------------------------------


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize("newer", [{"min_reader": 99, "min_writer": 99}, {"features": ["warp"]}])
def test_a_newer_format_is_refused_by_readers_and_writers(
    spark: Any, root: str, newer: dict[str, Any]
) -> None:
    write(frame(spark), root, **KEYED)
    path = Path(root, "_ffq/format.json")
    change(path, **newer)
    before = decided(root)
    assert_error(lambda: read(spark, root), "FFQ_FUTURE_FORMAT", str(path), "Upgrade")
    assert_error(lambda: write(frame(spark), root), "FFQ_FUTURE_FORMAT", str(path))
    assert decided(root) == before


def test_an_older_reader_reads_what_only_newer_writers_may_extend(spark: Any, root: str) -> None:
    write(frame(spark), root, **KEYED)
    change(Path(root, "_ffq/format.json"), min_writer=99)
    assert read(spark, root).count() == 200
    assert_error(lambda: write(frame(spark), root), "FFQ_FUTURE_FORMAT", "writing")


def test_no_part_is_named_twice(spark: Any, healthy: str) -> None:
    """No two parts of the exchange share bytes, which the damage tests rely on."""
    parts = Exchange(healthy).parts()
    places = list(zip(parts["file"].to_pylist(), parts["offset"].to_pylist(), strict=True))
    assert len(set(places)) == len(places)
    assert sorted({file for file, _ in places}) == part_files(healthy)
    assert sum(parts["rows"].to_pylist()) == 200
