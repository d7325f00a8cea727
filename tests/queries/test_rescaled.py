"""Spark over an exchange whose number of partitions changes: queries, streams and readers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as f
from query_plans import Answer, conf
from spark_rows import SOURCE, read, rows, write

from ffq_spark import Exchange

pytestmark = pytest.mark.spark


@pytest.fixture(params=["true", "false"], ids=["aqe", "no aqe"])
def aqe(spark: Any, request: pytest.FixtureRequest) -> Iterator[None]:
    settings = {"spark_sql_adaptive_enabled": request.param}
    with conf(spark, spark_sql_autoBroadcastJoinThreshold="-1", **settings):
        yield


def numbers(spark: Any, first: int, end: int) -> Any:
    return spark.range(first, end, 1, 2).selectExpr("id % 90 AS k", "id AS v")


def renamed(spark: Any) -> Any:
    return numbers(spark, 0, 250).withColumnRenamed("v", "w")


@pytest.fixture(scope="module")
def grown_root(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write steps of 8, 12 and 4 partitions; all of them can be read in 4."""
    root = str(tmp_path_factory.mktemp("grown") / "root")
    write(numbers(spark, 0, 200), root, keys="k", partitions=8, sortBy="k,v")
    for count, first in ((12, 200), (4, 300)):
        Exchange(root).rescale(count)
        write(numbers(spark, first, first + 100), root, sortBy="k")
    return root


@pytest.fixture(scope="module")
def grown(spark: Any, grown_root: str) -> Any:
    return read(spark, grown_root)


@pytest.fixture(scope="module")
def other(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = str(tmp_path_factory.mktemp("other") / "root")
    write(renamed(spark), root, keys="k", partitions=8)
    return read(spark, root)


@pytest.mark.usefixtures("aqe")
def test_steps_of_several_numbers_are_joined_and_grouped_without_a_shuffle(
    spark: Any, grown: Any, other: Any
) -> None:
    table = numbers(spark, 0, 400)
    for how in ("inner", "full", "left_anti"):
        answer = Answer(grown.join(other, "k", how))
        assert answer.count("Exchange") == 0
        assert answer.rows == rows(table.join(renamed(spark), "k", how))
    answer = Answer(grown.groupBy("k").agg(f.sum("v"), f.count("*")))
    assert answer.count("Exchange") == 0
    assert answer.rows == rows(table.groupBy("k").agg(f.sum("v"), f.count("*")))


def test_a_filter_and_the_option_partitions_select_the_right_rows(
    spark: Any, grown: Any, grown_root: str
) -> None:
    table = numbers(spark, 0, 400)
    for key in (0, 13, 89, 500):
        assert rows(grown.where(f"k = {key}")) == rows(table.where(f"k = {key}"))
    place = f.pmod(f.hash("k"), f.lit(4))
    assert rows(read(spark, grown_root, partitions="2")) == rows(table.where(place == 2))


def test_a_stream_and_three_readers_go_on_while_the_number_changes(
    spark: Any, root: str, new_root: Any, tmp_path: Path
) -> None:
    source = new_root()
    write(numbers(spark, 0, 20), source, keys="k", partitions=8)
    stream = spark.readStream.format(SOURCE).load(source).writeStream.format(SOURCE)
    stream = stream.options(keys="k", partitions=8, checkpointLocation=str(tmp_path / "c"))
    query = stream.start(root)
    query.processAllAvailable()
    done, failures, seen = threading.Event(), list[BaseException](), list[list[int]]()

    def follow() -> None:
        counts = []
        try:
            while not done.is_set():
                values = sorted(Exchange(root).read().read_all()["v"].to_pylist())
                assert values == list(range(len(values))) and len(values) % 20 == 0
                counts.append(len(values))
        except BaseException as error:
            failures.append(error)
        seen.append(counts)

    readers = [threading.Thread(target=follow) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number, count in enumerate((64, 64, 8, 8, 64, 8), start=1):
        for rescaled in (source, root):
            Exchange(rescaled).rescale(count)
        write(numbers(spark, 20 * number, 20 * (number + 1)), source)
        query.processAllAvailable()
    query.stop()
    done.set()
    for reader in readers:
        reader.join()
    assert failures == []
    assert all(counts == sorted(counts) and counts for counts in seen)
    assert [step.body.partitions for step in Exchange(root).steps()] == [8, 64, 64, 8, 8, 64, 8]
    assert rows(read(spark, root)) == rows(numbers(spark, 0, 140))
    assert Exchange(root).verify().ok and Exchange(source).verify().ok
