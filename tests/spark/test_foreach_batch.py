"""Batch writes with `streamId` and `batch`: re-runs add nothing, new rows are never dropped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from spark_rows import SOURCE, failure, read, write

from ffq_spark import Exchange

pytestmark = pytest.mark.spark

KEYS = {"keys": "k", "partitions": 2}


def frame(spark: Any, first: int, count: int) -> Any:
    return spark.range(first, first + count, 1, 2).selectExpr("id AS k")


def pour(spark: Any, upstream: str, root: str, checkpoint: Path, **options: Any) -> None:
    """Run a streaming query that writes each batch by a batch write, until all steps are read."""

    def deliver(rows: Any, batch: int) -> None:
        write(rows, root, **{**KEYS, "streamId": "s", "batch": batch, **options})

    stream = spark.readStream.format(SOURCE).option("maxStepsPerTrigger", 1).load(upstream)
    query = stream.writeStream.foreachBatch(deliver).trigger(availableNow=True)
    query.option("checkpointLocation", str(checkpoint)).start().awaitTermination()


def keys(spark: Any, root: str) -> list[int]:
    return sorted(row.k for row in read(spark, root).collect())


def epochs(root: str) -> list[tuple[int, int]]:
    streams = [step.body.stream for step in Exchange(root).steps()]
    return [(stream.epoch, stream.batch) for stream in streams if stream]


def test_a_fresh_checkpoint_is_refused_until_it_takes_the_stream_over(
    spark: Any, new_root: Any, tmp_path: Path
) -> None:
    first, second, root = new_root(), new_root(), new_root()
    write(frame(spark, 0, 5), first, **KEYS)
    write(frame(spark, 100, 7), second, **KEYS)

    pour(spark, first, root, tmp_path / "a")
    for record in (tmp_path / "a" / "commits").glob("*0*"):
        record.unlink()
    pour(spark, first, root, tmp_path / "a")
    assert keys(spark, root) == [*range(5)]

    message = failure(lambda: pour(spark, second, root, tmp_path / "b"))
    assert "FFQ_STREAM_OWNED" in message and "takeover=true" in message
    assert keys(spark, root) == [*range(5)]

    pour(spark, second, root, tmp_path / "c", takeover=True)
    assert keys(spark, root) == [*range(5), *range(100, 107)]
    assert epochs(root) == [(1, 0), (2, 0)]

    write(frame(spark, 5, 1), first, **KEYS)
    assert "FFQ_STREAM_OWNED" in failure(lambda: pour(spark, first, root, tmp_path / "a"))


def test_a_job_is_safe_to_run_again_and_other_rows_are_an_error(spark: Any, root: str) -> None:
    nightly = {**KEYS, "streamId": "nightly", "streamRun": "2026"}
    for _ in range(2):
        write(frame(spark, 0, 5), root, batch=17, **nightly)
    assert keys(spark, root) == [*range(5)]

    message = failure(lambda: write(frame(spark, 0, 7), root, batch=17, **nightly))
    assert "FFQ_REPLAY_MISMATCH" in message and "takeover=true" in message
    write(frame(spark, 0, 7), root, batch=17, onMismatch="warn", **nightly)
    assert keys(spark, root) == [*range(5)]

    anew = {**nightly, "streamRun": "2027"}
    assert "FFQ_STREAM_OWNED" in failure(lambda: write(frame(spark, 9, 1), root, batch=17, **anew))
    for _ in range(2):
        write(frame(spark, 9, 1), root, batch=17, takeover=True, **anew)
    assert keys(spark, root) == [*range(5), 9]
    assert epochs(root) == [(1, 17), (2, 17)]


def test_options_that_could_do_nothing_are_refused(spark: Any, root: str) -> None:
    for wrong in (
        {"takeover": True},
        {"streamRun": "a"},
        {"takeover": True, "streamId": "s", "batch": 0},
    ):
        message = failure(lambda wrong=wrong: write(frame(spark, 0, 1), root, **KEYS, **wrong))
        assert "FFQ_BAD_OPTION" in message
    stream = spark.readStream.format("rate").load().selectExpr("value AS k").writeStream
    stream = stream.format(SOURCE).options(**KEYS, streamRun="a", checkpointLocation=f"{root}-c")
    query = stream.start(root)
    assert "FFQ_BAD_OPTION" in failure(query.awaitTermination)
