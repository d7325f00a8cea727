"""A write in which the first attempt of task 1 fails, with rows that must never be visible."""

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
    """Write rows; the first attempt of task 1 writes poison, and then calls `trouble`."""
    mark = str(marker)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = False
        task = TaskContext.get()
        # A speculative twin may arrive before the original attempt.
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
    """Check the rows, and that the listener saw the end of every registered attempt."""
    exchange = Exchange(root)
    assert sorted(exchange.read().read_all()["id"].to_pylist()) == list(range(ROWS))

    def ends() -> list[tuple[int, str]]:
        registered = [a for a in exchange.attempts() if a.state == "registered"]
        return sorted((a.map_task, a.task.state if a.task else "unseen") for a in registered)

    expected = [(task, "SUCCESS") for task in range(TASKS)]
    wait_for(lambda: ends() == expected, 40, f"the end of all attempts that count: {ends()}")


def eventually_lost(root: str, state: str) -> AttemptState:
    """Wait until the listener has seen the losing attempt of task 1 end, and return its state."""

    def lost_attempts() -> list[AttemptState]:
        losers = [a for a in Exchange(root).attempts() if a.state != "registered"]
        return [a for a in losers if a.map_task == 1 and a.task and a.task.state == state]

    wait_for(lost_attempts, 40, f"an attempt of task 1 that is {state}")
    return lost_attempts()[0]
