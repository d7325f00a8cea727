"""The bridge also records the tasks of streaming writes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from ffq_spark import Exchange
from ffq_spark.exchange.ledger import leases
from ffq_spark.format import paths
from ffq_spark.store import Store

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("source_name", ["ffqshuffle", "FFQShuffle"])
def test_each_batch_has_its_own_query_lease_and_attempts(
    spark: Any, root: str, tmp_path: Path, source_name: str
) -> None:
    source = str(tmp_path / "source")
    for i in range(3):
        rows = spark.range(10, numPartitions=2).selectExpr("id AS k", f"{i} AS v")
        rows.write.format("ffqshuffle").options(keys="k", partitions=2).mode("append").save(source)
    stream = spark.readStream.format("ffqshuffle").option("maxStepsPerTrigger", 1).load(source)
    write = stream.writeStream.format(source_name).options(keys="k", partitions=2)
    write = write.option("checkpointLocation", str(tmp_path / "checkpoint"))
    write.trigger(availableNow=True).start(root).awaitTermination()
    exchange = Exchange(root)
    assert len({step.body.query for step in exchange.steps()}) == 3
    end = time.monotonic() + 30
    while not all(a.task and a.task.state == "SUCCESS" for a in exchange.attempts()):
        assert time.monotonic() < end
        time.sleep(0.2)
    assert {a.state for a in exchange.attempts()} == {"registered"}
    statuses = exchange.status()
    assert [s.state.name for s in statuses] == ["SUCCEEDED"] * 3
    (initiator,) = {s.initiator for s in statuses}
    assert initiator.startswith(spark.sparkContext.applicationId)
    store = Store(root)
    assert leases.read(store, initiator) is not None
    assert len(store.list(paths.LEASES)) == 1
