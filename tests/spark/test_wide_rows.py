"""Writers receive bounded batches of rows of any width, and other jobs keep Spark's batches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import start_spark
from pyspark.sql.datasource import DataSource, DataSourceReader
from spark_rows import read, rows, write

import ffq_spark as ffq
from ffq_spark.spark.source import FfqShuffleSource

pytestmark = pytest.mark.spark

# The limit of the batches that reach a writer; a batch may exceed it by one row.
BATCH_BYTES = 2 << 20


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    session = start_spark("local[1]")
    yield session
    session.stop()


def wide(spark: Any, count: int, width: int) -> Any:
    """Make rows of a given width; the filter makes Spark process rows instead of columns."""
    text = f"REPEAT(CHR(CAST(65 + id % 26 AS INT)), {width}) AS s"
    return spark.range(0, count, 1, 1).selectExpr("id AS k", text).where("LENGTH(s) > 1")


def counted(frame: Any) -> list[Any]:
    """Return the rows and bytes of each batch that a user's own job receives."""

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.record_batch({"n": [batch.num_rows], "bytes": [batch.nbytes]})

    counts: list[Any] = frame.mapInArrow(count, "n LONG, bytes LONG").collect()
    return counts


def test_a_job_of_the_users_has_batches_of_sparks_own_size(spark: Any) -> None:
    batches = counted(wide(spark, 300, 280_000))
    assert sum(row.n for row in batches) == 300
    assert max(row.bytes for row in batches) <= (64 << 20) + 300_000


@pytest.mark.soak
def test_rows_that_fit_into_no_arrow_vector_are_written_and_mapped(spark: Any, root: str) -> None:
    """Spark's limit by rows would put all 8,000 rows of 280 kB into one batch."""
    frame = wide(spark, 8_000, 280_000)
    assert sum(row.n for row in counted(frame)) == 8_000
    write(frame, root, keys="k", partitions=2, compression="zstd")
    assert read(spark, root).count() == 8_000


def sizes(place: Path) -> list[tuple[int, int]]:
    """Return the rows and bytes of the batches that reached the writers."""
    return [tuple(json.loads(line)) for line in place.read_text().splitlines()]


@pytest.fixture
def watched(spark: Any, tmp_path: Path) -> Iterator[Path]:
    """Log every batch that reaches the writers; return the path of the log."""
    place = tmp_path / "batches"

    def telling(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            with open(place, "a") as file:
                print([batch.num_rows, batch.nbytes], file=file)
            yield batch

    class Watched(FfqShuffleSource):
        def writer(self, schema: Any, overwrite: bool) -> Any:
            return _watch(super().writer(schema, overwrite))

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            return _watch(super().streamWriter(schema, overwrite))

    def _watch(writer: Any) -> Any:
        plain = writer.write
        writer.write = lambda iterator: plain(telling(iterator))
        return writer

    spark.dataSource.register(Watched)
    yield place
    ffq.register(spark)


KINDS = {
    "short": ("k", 100_000),
    "long": ("REPEAT('x', 100000) AS s", 100),
    "short, then long": ("IF(k < 1500, 'x', REPEAT('x', 100000)) AS s", 1_600),
    "decimals": ("ARRAY_REPEAT(CAST(k AS DECIMAL(9, 2)), 1000) AS m", 1_000),
    "null structs": (
        "ARRAY_REPEAT(CAST(NULL AS STRUCT<a: DECIMAL(38, 0), b: DECIMAL(38, 0)>), 1000) AS n",
        1_000,
    ),
    "nested text": ("ARRAY_REPEAT(REPEAT('x', 1000), 100) AS t", 100),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_bounded_in_bytes(spark: Any, root: str, watched: Path, kind: str) -> None:
    column, count = KINDS[kind]
    frame = spark.range(0, count, 1, 1).selectExpr("id AS k").where("k >= 0")
    frame = frame.selectExpr("k", column) if column != "k" else frame
    write(frame, root, keys="k", partitions=2)
    batch_sizes = sizes(watched)
    assert sum(number for number, _ in batch_sizes) == count
    largest_row = 200_000
    assert max(size for _, size in batch_sizes) <= BATCH_BYTES + largest_row
    # All batches but the last are at least a quarter of the limit.
    assert min([size for _, size in batch_sizes[:-1]], default=BATCH_BYTES) >= BATCH_BYTES // 4


COLUMNS = {
    "arrays": (["ARRAY_REPEAT(k, 10000) AS a"], 1_000),
    "short, then long": (["ARRAY_REPEAT(k, IF(k < 1500, 1, 10000)) AS a"], 2_000),
    "nested text": (["ARRAY_REPEAT(REPEAT('x', 1000), 80) AS t"], 1_000),
    "structs": (["NAMED_STRUCT('s', REPEAT('x', 80000), 'k', k) AS n"], 1_000),
    "text and arrays": (["REPEAT('x', 40000) AS s", "ARRAY_REPEAT(k, 5000) AS a"], 1_000),
    "two arrays": (["ARRAY_REPEAT(k, 2) AS a", "ARRAY_REPEAT(k, 10000) AS b"], 1_000),
    "decimals": (["CAST(k AS DECIMAL(9, 2)) AS d"], 100_000),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_batch_of_copied_columns_is_bounded_in_bytes(
    spark: Any, root: str, watched: Path, tmp_path: Path, kind: str
) -> None:
    columns, count = COLUMNS[kind]
    files = str(tmp_path / "parquet")
    numbers = spark.range(0, count, 1, 1).selectExpr("id AS k")
    numbers.selectExpr("k", *columns).write.parquet(files)
    frame = spark.read.parquet(files)
    write(frame, root, keys="k", partitions=2)
    batch_sizes = sizes(watched)
    assert sum(number for number, _ in batch_sizes) == count
    # Sizes are measured after up to 64 rows, of up to 80,000 bytes each.
    assert max(size for _, size in batch_sizes) <= BATCH_BYTES + 64 * 81_000
    assert rows(read(spark, root)) == rows(frame)


def test_a_write_by_another_spelling_of_the_source_is_the_same(
    spark: Any, root: str, watched: Path
) -> None:
    """Spark finds a source whatever the case of its name, and keeps the user's spelling."""
    writer = wide(spark, 100, 100_000).write.format("FFQShuffle").mode("append")
    writer.options(keys="k", partitions=2).save(root)
    assert max(size for _, size in sizes(watched)) <= BATCH_BYTES + 200_000
    (status,) = ffq.Exchange(root).status()
    assert status.initiator.startswith(spark.sparkContext.applicationId)


@pytest.mark.parametrize("name", ["ffqshuffle", "FFQShuffle"])
def test_the_batches_of_a_stream_are_bounded_too(
    spark: Any, new_root: Any, watched: Path, tmp_path: Path, name: str
) -> None:
    source, target = new_root(), new_root()
    write(wide(spark, 100, 100_000), source, keys="k", partitions=2)
    watched.unlink()
    stream = spark.readStream.format("ffqshuffle").load(source).where("LENGTH(s) > 1")
    writer = stream.writeStream.format(name).options(keys="k", partitions=2)
    writer = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    query = writer.start(target)
    query.awaitTermination()
    assert query.lastProgress.sink.numOutputRows == 100
    assert len(sizes(watched)) > 3
    assert max(size for _, size in sizes(watched)) <= BATCH_BYTES + 200_000
    assert rows(read(spark, target)) == rows(read(spark, source))


def test_rows_that_do_not_know_their_size_are_bounded_too(
    spark: Any, root: str, watched: Path
) -> None:
    """Rows of a Python source reach a write directly, without an operator of Spark in between."""

    class Reader(DataSourceReader):
        def read(self, partition: Any) -> Iterator[tuple[Any, ...]]:
            return ((number, "x" * 100_000) for number in range(100))

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "rows_of_tuples"

        def schema(self) -> str:
            return "k LONG, s STRING"

        def reader(self, schema: Any) -> DataSourceReader:
            return Reader()

    spark.dataSource.register(Source)
    frame = spark.read.format("rows_of_tuples").load()
    write(frame, root, keys="k", partitions=2)
    assert max(size for _, size in sizes(watched)) <= BATCH_BYTES + 200_000
    assert rows(read(spark, root)) == rows(frame)


def test_what_acts_on_every_python_job_is_left_to_spark(spark: Any) -> None:
    settings = dict(spark.sparkContext.getConf().getAll())
    assert "spark.plugins" in settings
    assert "spark.sql.execution.arrow.maxBytesPerBatch" not in settings
    assert "spark.sql.python.filterPushdown.enabled" not in settings
