"""Batch writes and reads through Spark: which rows the modes and options return."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from spark_rows import failure, files, part_files, read, rows, write
from stored_parts import stored_parts

from ffq_spark import Exchange

pytestmark = pytest.mark.spark

KEYED = {"keys": "k", "partitions": 8}


def people(spark: Any, first: int = 0, count: int = 100, tasks: int = 2) -> Any:
    """Make numbered rows; a tenth of them has a null key."""
    return spark.range(first, first + count, 1, tasks).selectExpr(
        "id", "IF(id % 10 = 0, NULL, id % 37) AS k", "CONCAT('name ', id) AS name", "id / 7 AS x"
    )


def test_append_adds_and_overwrite_hides_what_was_before(spark: Any, root: str) -> None:
    """Steps before the overwrite stay readable by number."""
    one, two, three, four = (people(spark, 100 * i) for i in range(4))
    write(one, root, **KEYED)
    write(two, root)
    assert rows(read(spark, root)) == rows(one.union(two))
    write(three, root, mode="overwrite")
    assert rows(read(spark, root)) == rows(three)
    write(four, root)
    assert rows(read(spark, root)) == rows(three.union(four))
    assert rows(read(spark, root, asOfStep=2)) == rows(one.union(two))
    assert [step.body.mode for step in Exchange(root).steps()] == [
        "append", "append", "replace", "append",
    ]  # fmt: skip


def test_an_exchange_can_be_replaced_by_what_is_read_from_it(spark: Any, root: str) -> None:
    """A write may read and replace the same exchange."""
    write(people(spark), root, **KEYED)
    write(read(spark, root).where("id >= 50"), root, mode="overwrite")
    assert rows(read(spark, root)) == rows(people(spark, 50, 50))
    write(read(spark, root), root)
    assert rows(read(spark, root)) == rows(people(spark, 50, 50).union(people(spark, 50, 50)))


def test_steps_are_read_alone_in_ranges_and_as_of_a_moment(spark: Any, root: str) -> None:
    """`steps` also reads replaced steps; `asOfStep` reads the snapshot as of a step."""
    frames = [people(spark, 100 * i) for i in range(4)]
    for frame, mode in zip(frames, ["append", "append", "overwrite", "append"], strict=True):
        write(frame, root, mode, **KEYED)
    one, two, three, four = frames
    expected = {
        "2": two,
        "1..2": one.union(two),
        "2..3": two.union(three),
        "latest": four,
        "all": one.union(two).union(three).union(four),
    }
    for steps, frame in expected.items():
        assert rows(read(spark, root, steps=steps)) == rows(frame), steps
    moments = {1: one, 2: one.union(two), 3: three, 4: three.union(four)}
    for step, frame in moments.items():
        assert rows(read(spark, root, asOfStep=step)) == rows(frame), step


@pytest.mark.parametrize("steps", ["", "all", "latest"])
def test_a_frame_keeps_the_snapshot_it_was_made_of(spark: Any, root: str, steps: str) -> None:
    """Later steps change no scan of the frame, even if it is filtered or joined with itself."""
    write(people(spark), root, **KEYED)
    options = {"steps": steps} if steps else {}
    made = read(spark, root, **options)
    given = spark.read.format("ffqshuffle").options(**options).schema(made.schema).load(root)
    assert given.count() == 100
    write(people(spark, 100), root)
    for frame in (made, given):
        assert rows(frame) == rows(people(spark))
        assert frame.where("id >= 100").count() == 0
        assert frame.join(frame.select("id"), "id").count() == 100
    assert read(spark, root, steps="all").count() == 200


def test_appended_columns_are_found_by_name(spark: Any, root: str) -> None:
    write(people(spark), root, **KEYED)
    write(people(spark, 100).select("x", "name", "id", "k"), root)
    assert read(spark, root).columns == ["id", "k", "name", "x"]
    assert rows(read(spark, root)) == rows(people(spark, count=200))


def test_an_append_without_options_takes_the_exchanges_own(spark: Any, root: str) -> None:
    write(people(spark), root, keys="k,name", partitions=8, hash="spark")
    write(people(spark, 100), root)
    appended = read(spark, root, steps="2", metadataColumns="true")
    assert appended.where("_ffq_partition != PMOD(HASH(k, name), 8)").count() == 0
    assert appended.select("_ffq_partition").distinct().count() > 4


def test_only_one_partition_needs_no_keys(spark: Any, root: str) -> None:
    message = failure(lambda: write(people(spark), root, partitions=4))
    assert "FFQ_BAD_OPTION" in message
    assert "keys" in message
    message = failure(lambda: write(people(spark), root, keys="k"))
    assert "FFQ_BAD_OPTION" in message
    assert "partitions" in message
    assert files(root) == []
    write(people(spark), root, partitions=1)
    write(people(spark, 100), root)
    assert rows(read(spark, root)) == rows(people(spark, count=200))


def test_partitions_are_read_alone(spark: Any, root: str) -> None:
    df = people(spark)
    write(df, root, **KEYED)
    assert rows(read(spark, root, partitions="3")) == rows(df.where("PMOD(HASH(k), 8) = 3"))
    low, high = read(spark, root, partitions="0-2"), read(spark, root, partitions="3-6,7")
    assert low.count() and high.count()
    assert rows(low.union(high)) == rows(df)
    message = failure(lambda: read(spark, root, partitions="8").collect())
    assert "FFQ_PARTITION_NOT_FOUND" in message


def test_columns_are_read_alone_and_in_their_given_order(spark: Any, root: str) -> None:
    df = people(spark)
    write(df, root, **KEYED)
    chosen = read(spark, root, columns="name, id")
    assert chosen.columns == ["name", "id"]
    assert rows(chosen) == rows(df.select("name", "id"))
    assert chosen.count() == 100
    message = failure(lambda: read(spark, root, columns="nam"))
    assert "FFQ_COLUMN_MISSING" in message
    assert "'nam'" in message


def test_an_exchange_may_have_columns_of_these_names(spark: Any, root: str, tmp_path: Any) -> None:
    """In a copy of an exchange with its metadata columns, they are ordinary columns."""
    write(people(spark), root, **KEYED)
    write(people(spark, 100), root)
    with_metadata = read(spark, root, metadataColumns="true")
    copy = str(tmp_path / "copy")
    write(with_metadata, copy, **KEYED)
    assert rows(read(spark, copy)) == rows(with_metadata)
    assert {row[0] for row in read(spark, copy).select("_ffq_step").collect()} == {1, 2}
    message = failure(lambda: read(spark, copy, metadataColumns="true"))
    assert "FFQ_BAD_OPTION" in message
    assert "_ffq_step" in message


def test_metadata_columns_say_where_each_row_lies(spark: Any, root: str) -> None:
    """Metadata columns name the part that contains the row."""
    write(people(spark), root, **KEYED)
    write(people(spark, 100), root, stage=5)
    collected = read(spark, root, metadataColumns="true").collect()
    assert len(collected) == 200
    names = ["step", "query", "map_task", "attempt", "reduce"]
    parts = {
        tuple(part[name] for name in names): part for part in Exchange(root).parts().to_pylist()
    }
    places = Counter(
        (r._ffq_step, r._ffq_query, r._ffq_map_task, r._ffq_attempt, r._ffq_partition)
        for r in collected
    )
    assert places == {place: part["rows"] for place, part in parts.items()}
    for (step, query, map_task, attempt, _), part in parts.items():
        stage = 0 if step == 1 else 5
        assert part["file"].startswith(f"shuffle/{query}/{stage}/{map_task}/{attempt}/part")
    assert {row._ffq_step for row in collected if row.id >= 100} == {2}
    alone = read(spark, root, metadataColumns="true", columns="id").select("_ffq_step")
    assert alone.where("_ffq_step = 1").count() == 100


def test_a_query_is_read_by_its_number_and_registered_attempt(spark: Any, root: str) -> None:
    write(people(spark, tasks=1), root, **KEYED, query=77)
    write(people(spark, 100, tasks=1), root)
    (attempt,) = {a.attempt for a in Exchange(root).attempts() if a.query == 77}
    for choice in ("registered", "latest", "0", attempt):
        output = read(spark, root, query=77, attempt=choice)
        assert rows(output) == rows(people(spark)), choice
    message = failure(lambda: read(spark, root, query=77, attempt=attempt + 1).collect())
    assert "FFQ_NOT_REGISTERED" in message
    assert "shuffle/77/0/0/" in message
    assert "FFQ_BAD_OPTION" in failure(lambda: read(spark, root, attempt="latest"))
    assert "FFQ_QUERY_NOT_FOUND" in failure(lambda: read(spark, root, query=78))


def test_verify_decides_what_is_compared(spark: Any, root: str) -> None:
    """After a bit flip in a value, `full` raises, `counts` and `none` return all rows."""
    df = people(spark, tasks=1).select("id", "k")
    write(df, root, **KEYED)
    for verify in ("full", "counts", "none"):
        assert rows(read(spark, root, verify=verify)) == rows(df)
    part = stored_parts(root)[0]
    data = bytearray(part.read())
    first, second, *_ = read(spark, root, partitions=part.partition).collect()
    data[data.index(first.id.to_bytes(8, "little") + second.id.to_bytes(8, "little"))] ^= 1
    part.put(data)
    assert "FFQ_CORRUPT_PART" in failure(lambda: read(spark, root).collect())
    for verify in ("counts", "none"):
        damaged = read(spark, root, verify=verify)
        assert damaged.count() == 100
        assert rows(damaged) != rows(df)


def test_read_tasks_follow_the_planning_options(spark: Any, root: str) -> None:
    """Neighbouring parts are joined up to a size, and options bound the number of tasks."""
    df = people(spark)
    write(df, root, **KEYED)
    parts = Exchange(root).parts()

    def tasks(**options: Any) -> int:
        frame = read(spark, root, **options)
        assert rows(frame) == rows(df)
        return frame.rdd.getNumPartitions()

    assert tasks() == 1
    assert tasks(minTasks=3) == 3
    assert tasks(minTasks=100) == 8
    assert tasks(maxTasks=3, targetPartitionBytes="1") == 3
    assert tasks(targetPartitionBytes="1") == parts.num_rows
    largest_pair = 2 * max(parts["bytes"].to_pylist())
    assert 2 <= tasks(targetPartitionBytes=2 * largest_pair) <= 4


@pytest.mark.parametrize("split", ["never", "hash", "map"])
def test_a_heavy_partition_is_divided_as_the_option_says(spark: Any, root: str, split: str) -> None:
    """Most rows have the key 1 or 2, and rows of a key stay together unless `split=map`."""
    df = spark.range(0, 4000, 1, 4).selectExpr(
        "id", "IF(id % 20 = 0, id, 1 + id % 2) AS k", "CONCAT('name ', id) AS name"
    )
    write(df, root, keys="k", partitions=2)
    frame = read(spark, root, split=split, targetPartitionBytes="8k")
    assert rows(frame) == rows(df)
    found = set(frame.selectExpr("k", "SPARK_PARTITION_ID() AS task").collect())
    tasks = {row.task for row in found}
    assert len(tasks) == 2 if split == "never" else len(tasks) > 4
    assert (len({row.k for row in found}) == len(found)) == (split != "map")
    by_key = frame.groupBy("k").count()
    assert by_key.rdd.getNumPartitions() == 2, "a partitioned scan does not split"
    assert by_key.count() == len({row.k for row in found})
    named = "k > 2 AND id % 100 = 0"
    assert rows(frame.where(named).select("name")) == rows(df.where(named).select("name"))
    assert frame.count() == 4000 and frame.select("name").distinct().count() == 4000


def test_a_given_schema_chooses_columns(spark: Any, root: str) -> None:
    """A schema selects columns in any order, also metadata columns; wrong types are an error."""
    df = people(spark).selectExpr("*", "ARRAY(id) AS list")
    write(df, root, **KEYED)
    reader = spark.read.format("ffqshuffle")
    chosen = reader.schema("name STRING, _ffq_partition INT, id BIGINT").load(root)
    assert chosen.columns == ["name", "_ffq_partition", "id"]
    expected = df.selectExpr("name", "PMOD(HASH(k), 8)", "id")
    assert rows(chosen) == rows(expected)
    own = spark.read.format("ffqshuffle").schema(df.schema).load(root)
    assert rows(own) == rows(df)
    for wrong in ("name INT", "nome STRING"):
        other = spark.read.format("ffqshuffle").schema(wrong).load(root)
        message = failure(other.collect)
        assert "FFQ_EXCHANGE_MISMATCH" in message
        assert wrong.split()[0] in message


@pytest.mark.parametrize("buffer", ["256MiB", "64k"])
def test_parts_are_sorted_as_spark_sorts(spark: Any, root: str, buffer: str) -> None:
    """Parts are ascending, nulls first, NaN last, even if a task's rows exceed its memory."""
    df = spark.range(0, 20_000, 1, 2).selectExpr(
        "id % 50 AS k",
        "CASE id % 11 WHEN 0 THEN NULL WHEN 1 THEN DOUBLE('NaN') ELSE ROUND(RAND(5), 2) END AS x",
        "CAST(HASH(id) AS STRING) AS name",
    ).cache()  # fmt: skip
    write(df, root, keys="k", partitions=4, sortBy="x,name", maxBufferBytes=buffer)
    collected = read(spark, root, metadataColumns="true").collect()
    assert rows(read(spark, root)) == rows(df)
    parts = itertools.groupby(collected, lambda row: (row._ffq_map_task, row._ffq_partition))
    count = 0
    for _, part in parts:
        keys = [(r.x is not None, math.isnan(r.x or 0), _number(r.x), r.name) for r in part]
        assert keys == sorted(keys)
        count += 1
    assert count == 8


def _number(x: float | None) -> float:
    return 0.0 if x is None or math.isnan(x) else x


@pytest.mark.parametrize("payload", ["arrow", "ffqs"])
@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_every_payload_and_compression_holds_the_same_rows(
    spark: Any, root: str, payload: str, compression: str
) -> None:
    df = people(spark, count=2000)
    write(df, root, **KEYED, payload=payload, compression=compression)
    assert rows(read(spark, root)) == rows(df)
    assert rows(read(spark, root, columns="x,k")) == rows(df.select("x", "k"))
    heads = {Path(root, name).read_bytes()[:4] for name in part_files(root)}
    assert heads == {b"FFQS"} if payload == "ffqs" else b"FFQS" not in heads
    (index, *_) = [name for name in files(root, "shuffle") if name.endswith("index.json")]
    codecs = {p.get("codec") for p in json.loads(Path(root, index).read_text())["partitions"]}
    assert codecs == ({compression} if payload == "ffqs" else {None})


def test_query_and_stage_are_the_path_of_the_files(spark: Any, root: str) -> None:
    write(people(spark), root, **KEYED, query=123456789012345678, stage=3)
    assert all(f.startswith("shuffle/123456789012345678/3/") for f in files(root, "shuffle"))
    assert part_files(root)
    assert rows(read(spark, root)) == rows(people(spark))
    assert rows(read(spark, root, query=123456789012345678, stage=3)) == rows(people(spark))
