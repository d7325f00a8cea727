"""Streams of steps: each micro-batch becomes one step, and each step is read once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from spark_rows import SOURCE, failure, read, rows, write

from ffq_spark import Exchange

pytestmark = pytest.mark.spark


@pytest.fixture
def upstream(spark: Any, new_root: Any) -> str:
    """Write five steps of 20 rows."""
    root: str = new_root()
    for i in range(5):
        batch(spark, i, root)
    return root


def batch(spark: Any, i: int, root: str, mode: str = "append") -> None:
    df = spark.range(20 * i, 20 * (i + 1), 1, 2).selectExpr("id % 7 AS k", "id AS v")
    write(df, root, mode, keys="k", partitions=4)


def follow(spark: Any, root: str, **options: Any) -> Any:
    options = {"maxStepsPerTrigger": 1, **options}
    return spark.readStream.format(SOURCE).options(**options).load(root)


def run(df: Any, root: str, checkpoint: Path, mode: str = "append", **options: Any) -> None:
    """Write all available batches and stop."""
    stream = df.writeStream.format(SOURCE).outputMode(mode)
    stream = stream.options(keys="k", partitions=4, checkpointLocation=str(checkpoint), **options)
    query = stream.trigger(availableNow=True).start(root)
    query.awaitTermination()


def replay_last(checkpoint: Path) -> None:
    """Delete the commit of the last batch from the checkpoint, so that Spark runs it again."""
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    for path in (checkpoint / "commits").glob(f"*{last}*"):
        path.unlink()


def test_a_chain_of_streams_copies_every_step_with_its_lineage(
    spark: Any, upstream: str, new_root: Any, tmp_path: Path
) -> None:
    middle, end = new_root(), new_root()
    run(follow(spark, upstream), middle, tmp_path / "a")
    run(follow(spark, middle), end, tmp_path / "b", streamId="copy")
    assert rows(read(spark, end)) == rows(read(spark, upstream))
    steps = Exchange(end).steps()
    assert [step.body.rows for step in steps] == [20] * 5
    for i, step in enumerate(steps):
        stream, offsets = step.body.stream, step.body.offsets
        assert stream is not None and offsets is not None
        assert (stream.stream, stream.batch, stream.rows) == ("copy", i, 20)
        assert [json.loads(text) for text in offsets.end] == [{"step": i + 1}]
        assert [json.loads(text) for text in offsets.start] == ([{"step": i}] if i else [])
        assert rows(read(spark, end, steps=step.step)) == rows(read(spark, upstream, steps=i + 1))
    assert {status.state.name for status in Exchange(end).status()} == {"SUCCEEDED"}


def test_a_replayed_batch_is_discarded_and_compared(
    spark: Any, upstream: str, root: str, tmp_path: Path
) -> None:
    """Equal rows in another order and from other tasks count as the same rows."""
    for tasks in (1, 3):
        run(follow(spark, upstream).repartition(tasks), root, tmp_path)
        replay_last(tmp_path)
    run(follow(spark, upstream), root, tmp_path)
    assert rows(read(spark, root)) == rows(read(spark, upstream))
    assert len(Exchange(root).steps()) == 5
    messages = [s.message for s in Exchange(root).status() if s.state.name == "FAILED"]
    assert len(messages) == 2
    assert all("its rows are the same" in message for message in messages)


def test_a_replay_with_other_rows_is_found(
    spark: Any, upstream: str, root: str, tmp_path: Path
) -> None:
    random = follow(spark, upstream).selectExpr("k", "v", "RAND() AS r")
    run(random, root, tmp_path)
    first = rows(read(spark, root))
    replay_last(tmp_path)
    run(random, root, tmp_path)
    (status,) = [s for s in Exchange(root).status() if s.state.name == "FAILED"]
    assert "its rows differ: first 20 rows, sum" in status.message
    replay_last(tmp_path)
    message = failure(lambda: run(random, root, tmp_path, onMismatch="fail"))
    assert "FFQ_REPLAY_MISMATCH" in message and message.count("20 rows, sum") >= 2
    run(random, root, tmp_path, onMismatch="ignore")
    assert rows(read(spark, root)) == first


def test_a_stream_belongs_to_one_query(
    spark: Any, upstream: str, root: str, tmp_path: Path
) -> None:
    """A new checkpoint numbers from 0 again, so its batches would look like duplicates."""
    run(follow(spark, upstream), root, tmp_path / "a", streamId="s")
    message = failure(lambda: run(follow(spark, upstream), root, tmp_path / "b", streamId="s"))
    assert "FFQ_STREAM_OWNED" in message and "takeover=true" in message
    assert len(Exchange(root).steps()) == 5
    run(follow(spark, upstream), root, tmp_path / "b", streamId="s", takeover=True)
    assert len(Exchange(root).steps()) == 10
    batch(spark, 5, upstream)
    message = failure(lambda: run(follow(spark, upstream), root, tmp_path / "a", streamId="s"))
    assert "FFQ_STREAM_OWNED" in message
    run(follow(spark, upstream), root, tmp_path / "c", streamId="other")
    assert len(Exchange(root).steps()) == 16


def test_complete_mode_replaces(spark: Any, upstream: str, root: str, tmp_path: Path) -> None:
    counts = follow(spark, upstream).groupBy("k").count()
    run(counts, root, tmp_path, mode="complete")
    assert rows(read(spark, root)) == rows(read(spark, upstream).groupBy("k").count())
    assert [step.body.mode for step in Exchange(root).steps()] == ["replace"] * 5


def test_a_batch_write_with_a_number_is_safe_to_run_again(spark: Any, root: str) -> None:
    df = spark.range(10).selectExpr("id AS k")
    nightly = {"keys": "k", "partitions": 2, "streamId": "nightly"}
    for number in (17, 17, 18, 17, 18):
        write(df, root, batch=number, **nightly)
    assert read(spark, root).count() == 20
    message = failure(lambda: write(df, root, batch=20, **nightly))
    assert "FFQ_STEP_GAP" in message
    assert "FFQ_STEP_GAP" in failure(lambda: write(df, root, batch=3, **nightly))
    write(df, root)
    assert read(spark, root).count() == 30
    outcomes = [s for s in Exchange(root).status() if s.state.name == "FAILED"]
    assert len(outcomes) == 5
    for given in ({"streamId": "s"}, {"batch": 3}):
        assert "FFQ_BAD_OPTION" in failure(lambda given=given: write(df, root, **given))


def test_offsets_can_be_asked_for(spark: Any, upstream: str, root: str, tmp_path: Path) -> None:
    """The sink does not know a checkpoint location from the session's settings."""
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path))
    try:
        stream = follow(spark, upstream).writeStream.format(SOURCE).trigger(availableNow=True)
        stream = stream.options(keys="k", partitions=4, requireOffsets=True)
        message = failure(lambda: stream.start(root).awaitTermination())
        assert "FFQ_NO_OFFSETS" in message
        stream.options(requireOffsets=False).start(root).awaitTermination()
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert [step.body.offsets for step in Exchange(root).steps()] == [None] * 5
