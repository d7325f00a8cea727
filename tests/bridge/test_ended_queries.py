"""The steward ends writes that fail where no writer can abort them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
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


def failing(frame: Any, root: str, pattern: str, count: int = 1) -> Any:
    """Make all tasks of a frame fail, once the root has `count` files that match a pattern."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        deadline = time.monotonic() + 60
        while len(list(Path(root).glob(pattern))) < count and time.monotonic() < deadline:
            time.sleep(0.05)
        raise RuntimeError("on purpose")

    return frame.mapInArrow(run, "id long")


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
def deaf(spark: Any) -> Iterator[None]:
    """Remove the listener from the bus, to simulate a full queue that drops all events."""
    jvm, bus = spark._jvm, spark.sparkContext._jsc.sc().listenerBus()
    kind = jvm.org.apache.spark.util.Utils.classForName("io.ffq.spark.FfqListener", True, False)
    listener = bus.findListenersByClass(jvm.scala.reflect.ClassTag.apply(kind)).apply(0)
    bus.removeListener(listener)
    try:
        yield
    finally:
        bus.addToStatusQueue(listener)


@pytest.mark.parametrize("case", ["adaptive", "not adaptive", "no events"])
def test_a_shuffle_that_fails_below_a_write_leaves_nothing_under_way(
    spark: Any, root: str, case: str
) -> None:
    """Adaptive execution runs the shuffle before a writer exists that could abort the write."""
    spark.conf.set("spark.sql.adaptive.enabled", str(case != "not adaptive"))
    rows = failing(spark.range(10, numPartitions=2), root, "_ffq/leases/*.json")
    try:
        with deaf(spark) if case == "no events" else nullcontext():
            with pytest.raises(Exception, match="on purpose"):
                save(rows.distinct(), root)
            wait_for_the_leases_end(root)
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")
    assert {status.state.name for status in Exchange(root).status()} <= {"FAILED"}


def test_a_micro_batch_of_which_no_task_finished_is_ended(
    spark: Any, root: str, tmp_path: Path
) -> None:
    stream = spark.readStream.format("rate").load().selectExpr("value AS id")
    exchange = Exchange(root)
    for runs in (1, 2):
        rows = failing(stream, root, "_ffq/queries/*[0-9].json", runs + 1)
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
