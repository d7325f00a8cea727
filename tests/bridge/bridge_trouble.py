"""A write whose task 1 gets into trouble the first time, with rows that must never be seen."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from bridge_processes import wait_for
from pyspark import TaskContext

from ffq_spark import Exchange
from ffq_spark.exchange.attempts.states import AttemptState

ROWS, TASKS, POISON = 400, 4, -1


def write(cluster: Any, root: str, trouble: Callable[[str], None], marker: Path) -> None:
    """Write rows; the first attempt of task 1 gets into trouble, and its rows are poison."""
    mark = str(marker)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = False
        task = TaskContext.get()
        # A speculative twin may come here before the attempt that it stands in for.
        if (task.partitionId(), task.attemptNumber()) == (1, 0):
            try:
                os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
                first = True
            except FileExistsError:
                pass
        for batch in batches:
            yield pa.record_batch({"id": [POISON] * batch.num_rows}) if first else batch
        if first:
            trouble(mark)

    frame = cluster.range(ROWS, numPartitions=TASKS).mapInArrow(run, "id long")
    writer = frame.write.format("ffqshuffle").mode("append")
    writer.option("keys", "id").option("partitions", 3).save(root)


def checked(root: str) -> None:
    """The rows are exactly right, and the listener saw the end of every attempt that counts."""
    exchange = Exchange(root)
    assert sorted(exchange.read().read_all()["id"].to_pylist()) == list(range(ROWS))

    def ends() -> list[tuple[int, str]]:
        registered = [a for a in exchange.attempts() if a.state == "registered"]
        return sorted((a.map_task, a.task.state if a.task else "unseen") for a in registered)

    expected = [(task, "SUCCESS") for task in range(TASKS)]
    wait_for(lambda: ends() == expected, 40, f"the end of all attempts that count: {ends()}")


def eventually_lost(root: str, state: str) -> AttemptState:
    """The attempt of task 1 that did not count, once the listener has seen its end."""

    def found() -> list[AttemptState]:
        losers = [a for a in Exchange(root).attempts() if a.state != "registered"]
        return [a for a in losers if a.map_task == 1 and a.task and a.task.state == state]

    wait_for(found, 40, f"an attempt of task 1 that is {state}")
    return found()[0]
