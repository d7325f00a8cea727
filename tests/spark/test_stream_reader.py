"""Streams that read an exchange: their first step, their batches, and pauses."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from spark_rows import SOURCE, failure, read, write

from ffq_spark import Exchange

pytestmark = pytest.mark.spark


@pytest.fixture
def upstream(spark: Any, root: str) -> str:
    add(spark, root, 5)
    return root


@pytest.fixture(autouse=True)
def no_query_stays(spark: Any) -> Iterator[None]:
    yield
    for query in spark.streams.active:
        query.stop()


def add(spark: Any, root: str, count: int = 1, mode: str = "append") -> None:
    """Write steps of two rows; the column `v` is the step's number."""
    for _ in range(count):
        step = len(Exchange(root).steps()) + 1 if Path(root).exists() else 1
        df = spark.range(2).selectExpr("id AS k", f"{step}L AS v")
        write(df, root, mode, keys="k", partitions=2)


class Stream:
    """A stream from one exchange into another, which can be stopped and started again."""

    def __init__(self, spark: Any, source: str, folder: Path, **options: Any) -> None:
        self.spark, self.source, self.options = spark, source, options
        self.root, self.checkpoint = str(folder / "root"), str(folder / "checkpoint")
        self.query: Any = None

    def start(self, **trigger: Any) -> None:
        df = self.spark.readStream.format(SOURCE).options(**self.options).load(self.source)
        stream = df.writeStream.format(SOURCE).options(keys="k", partitions=2)
        stream = stream.option("checkpointLocation", self.checkpoint)
        trigger = trigger or {"processingTime": "50 milliseconds"}
        self.query = stream.trigger(**trigger).start(self.root)

    def run(self) -> None:
        """Read all existing steps."""
        self.start(availableNow=True)
        self.query.awaitTermination()

    def stop(self) -> None:
        self.query.stop()

    def seen(self) -> Counter[int]:
        """Count the rows of each step that the stream has written."""
        if not Path(self.root, "_ffq/exchange.json").exists():
            return Counter()
        return Counter(Exchange(self.root).read(columns=["v"]).read_all()["v"].to_pylist())


def each(*steps: int) -> Counter[int]:
    return Counter(dict.fromkeys(steps, 2))


def wait_for(condition: Callable[[], bool], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)


def test_a_stream_begins_where_it_is_told(spark: Any, upstream: str, tmp_path: Path) -> None:
    expected = {"earliest": range(1, 6), "3": range(3, 6), "6": ()}
    for start, steps in expected.items():
        stream = Stream(spark, upstream, tmp_path / start, startingStep=start)
        stream.run()
        assert stream.seen() == each(*steps), start
    latest = Stream(spark, upstream, tmp_path / "latest", startingStep="latest", consumer="late")
    latest.run()
    add(spark, upstream, 2)
    latest.run()
    assert latest.seen() == each(6, 7)
    early = Stream(spark, upstream, tmp_path / "early", startingStep=9)
    assert "FFQ_STEP_NOT_FOUND" in failure(early.run)


def test_portions(spark: Any, upstream: str, tmp_path: Path) -> None:
    size = Exchange(upstream).steps()[0].body.bytes
    for name, options, batches in (
        ("all", {}, 1),
        ("steps", {"maxStepsPerTrigger": 2}, 3),
        ("bytes", {"maxBytesPerTrigger": 2 * size}, 3),
    ):
        stream = Stream(spark, upstream, tmp_path / name, **options)
        stream.run()
        assert stream.seen() == each(*range(1, 6))
        assert len(Exchange(stream.root).steps()) == batches, name


def test_a_replaced_snapshot(spark: Any, upstream: str, tmp_path: Path) -> None:
    """After an overwrite a stream obeys onReplace; a new one begins with the new snapshot."""
    kinds = ("fail", "follow", "skip")
    streams = {
        kind: Stream(spark, upstream, tmp_path / kind, onReplace=kind, maxStepsPerTrigger=2)
        for kind in kinds
    }
    for stream in streams.values():
        stream.run()
    add(spark, upstream, mode="overwrite")
    add(spark, upstream)
    assert "FFQ_REPLACED" in failure(streams["fail"].run)
    assert streams["fail"].seen() == each(*range(1, 6))
    streams["follow"].run()
    assert streams["follow"].seen() == each(*range(1, 8))
    streams["skip"].run()
    assert streams["skip"].seen() == each(*range(1, 6), 7)
    fresh = Stream(spark, upstream, tmp_path / "fresh", maxStepsPerTrigger=1)
    fresh.run()
    assert fresh.seen() == each(6, 7)


def test_an_expired_step_is_an_error_and_a_consumer_prevents_it(
    spark: Any, upstream: str, tmp_path: Path
) -> None:
    options = {"onReplace": "follow", "maxStepsPerTrigger": 1}
    named = Stream(spark, upstream, tmp_path / "named", consumer="named", **options)
    nameless = Stream(spark, upstream, tmp_path / "nameless", **options)
    for stream in (named, nameless):
        stream.run()
    for _ in range(4):
        add(spark, upstream, mode="overwrite")
    exchange = Exchange(upstream)
    exchange.gc(ttl=0, retention=0)
    # Spark reports a batch to the source as read when the next batch begins.
    assert [(c.consumer, c.step <= 5) for c in exchange.consumers()] == [("named", True)]
    named.run()
    assert named.seen() == each(*range(1, 10))
    exchange.forget("named")
    assert exchange.gc(ttl=0, retention=0).expired != []
    assert "FFQ_STEP_EXPIRED" in failure(nameless.run)
    old = Stream(spark, upstream, tmp_path / "old", startingStep=2)
    assert "FFQ_STEP_EXPIRED" in failure(old.run)


def test_three_consumers_restarted_at_random_see_every_step_once(
    spark: Any, upstream: str, tmp_path: Path
) -> None:
    choose = random.Random(11)
    streams = [
        Stream(spark, upstream, tmp_path / str(i), consumer=f"c{i}", maxStepsPerTrigger=i + 1)
        for i in range(3)
    ]
    for stream in streams:
        stream.start()
    for _ in range(8):
        add(spark, upstream)
        victim = choose.choice(streams)
        victim.stop()
        time.sleep(choose.random())
        victim.start()
    last = len(Exchange(upstream).steps())
    for stream in streams:
        wait_for(lambda stream=stream: stream.seen() == each(*range(1, last + 1)))
        assert [s.body.stream.batch for s in Exchange(stream.root).steps()] == list(
            range(len(Exchange(stream.root).steps()))
        )


def test_a_pause_brings_streams_of_any_speed_to_one_step(
    spark: Any, upstream: str, tmp_path: Path
) -> None:
    slow = Stream(spark, upstream, tmp_path / "slow", maxStepsPerTrigger=1)
    fast = Stream(spark, upstream, tmp_path / "fast")
    fast.start()
    wait_for(lambda: fast.seen() == each(*range(1, 6)))
    slow.start()
    step = Exchange(upstream).pause()
    add(spark, upstream, 3)
    for stream in (slow, fast):
        wait_for(lambda stream=stream: stream.seen() == each(*range(1, step + 1)))
    time.sleep(1)
    assert slow.seen() == fast.seen() == each(*range(1, step + 1))
    assert slow.query.isActive and fast.query.isActive
    assert read(spark, upstream).count() == 16
    Exchange(upstream).resume()
    for stream in (slow, fast):
        wait_for(lambda stream=stream: stream.seen() == each(*range(1, 9)))
