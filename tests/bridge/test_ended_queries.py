"""The steward ends writes that fail where no writer can abort, and keeps no lease of others."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from bridge_processes import wait_for
from conftest import start_spark

from ffq_spark import Exchange
from ffq_spark.exchange.ledger import leases
from ffq_spark.format import paths
from ffq_spark.format.ids import now_ms
from ffq_spark.store import Store

pytestmark = pytest.mark.spark

LEASE = 3


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    session = start_spark(**{"spark.ffq.lease.seconds": str(LEASE)})
    yield session
    session.stop()


def failing(frame: Any, seen: Callable[[], Any], count: int = 1, seconds: float = 60) -> Any:
    """Make all tasks of a frame fail, once they have seen `count` different things, or in time."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        deadline, known = time.monotonic() + seconds, set()
        while len(known) < count and time.monotonic() < deadline:
            known.update(seen())
            time.sleep(0.05)
        raise RuntimeError("on purpose")

    return frame.mapInArrow(run, "id long")


def contents(root: str, pattern: str) -> Callable[[], Any]:
    """Return a function that reads all files of a root that match a pattern."""
    return lambda: [file.read_bytes() for file in Path(root).glob(pattern)]


def slowly(seconds: float) -> Any:
    """Return a function for `mapInArrow` that takes some time for each task."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        time.sleep(seconds)
        yield from batches

    return run


def save(frame: Any, root: str, **options: Any) -> None:
    writer = frame.write.format("ffqshuffle").mode("append")
    writer.options(keys="id", partitions=2, **options).save(root)


def wait_for_the_leases_end(root: str) -> None:
    """Wait until the steward has a lease, and then until all leases have expired."""
    store = Store(root)
    wait_for(lambda: store.list(paths.LEASES), 60, "a lease")

    def is_over() -> bool:
        held = [leases.read(store, e.name.removesuffix(".json")) for e in store.list(paths.LEASES)]
        return all(lease is None or lease.expires_at_ms < now_ms() for lease in held)

    wait_for(is_over, 40, "the end of the lease")


@contextmanager
def without_listener(spark: Any) -> Iterator[None]:
    """Remove the listener from the bus, to simulate a full queue that drops all events."""
    jvm, bus = spark._jvm, spark.sparkContext._jsc.sc().listenerBus()
    kind = jvm.org.apache.spark.util.Utils.classForName("io.ffq.spark.FfqListener", True, False)
    listener = bus.findListenersByClass(jvm.scala.reflect.ClassTag.apply(kind)).apply(0)
    bus.removeListener(listener)
    try:
        yield
    finally:
        bus.addToStatusQueue(listener)


@pytest.mark.parametrize("is_heard", [True, False], ids=["events", "no events"])
def test_a_shuffle_that_fails_below_a_write_leaves_nothing(
    spark: Any, root: str, is_heard: bool
) -> None:
    """Adaptive execution runs the shuffle before a writer exists; it lasts for several looks."""
    rows = failing(spark.range(10, numPartitions=2), contents(root, "_ffq/*/*.json"), seconds=LEASE)
    with (
        nullcontext() if is_heard else without_listener(spark),
        pytest.raises(Exception, match="on purpose"),
    ):
        save(rows.distinct(), root)
    assert not Path(root).exists()


def test_a_write_that_is_refused_after_a_shuffle_leaves_nothing(spark: Any, root: str) -> None:
    """Adaptive execution runs the shuffle before the write's options are checked."""
    rows = spark.range(10, numPartitions=2).mapInArrow(slowly(LEASE), "id long")
    with pytest.raises(Exception, match="FFQ_BAD_OPTION"):
        save(rows.distinct(), root, hash="md5")
    assert not Path(root).exists()


@pytest.mark.parametrize("is_heard", [True, False], ids=["events", "no events"])
def test_a_write_that_fails_while_it_holds_a_lease_leaves_nothing_under_way(
    spark: Any, root: str, is_heard: bool
) -> None:
    """Without adaptive execution the writer takes a lease first. The steward renews it once."""
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    rows = failing(spark.range(10, numPartitions=2), contents(root, "_ffq/leases/*.json"), 2)
    try:
        with nullcontext() if is_heard else without_listener(spark):
            with pytest.raises(Exception, match="on purpose"):
                save(rows.distinct(), root)
            wait_for_the_leases_end(root)
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")
    assert [status.state.name for status in Exchange(root).status()] == ["FAILED"]


def test_a_micro_batch_of_which_no_task_finished_is_ended(
    spark: Any, root: str, tmp_path: Path
) -> None:
    stream = spark.readStream.format("rate").load().selectExpr("value AS id")
    exchange = Exchange(root)
    for runs in (1, 2):
        rows = failing(stream, contents(root, "_ffq/queries/*[0-9].json"), runs + 1)
        write = rows.writeStream.format("ffqshuffle").options(keys="id", partitions=2)
        write = write.option("checkpointLocation", str(tmp_path / "checkpoint"))
        with pytest.raises(Exception, match="on purpose"):
            write.start(root).awaitTermination()
        # The first batch of this source has no rows and therefore no failing tasks.
        states = ["SUCCEEDED"] + ["FAILED"] * runs
        wait_for(
            partial(lambda wanted: [s.state.name for s in exchange.status()] == wanted, states),
            30,
            f"the end of {runs} queries",
        )
    wait_for_the_leases_end(root)
