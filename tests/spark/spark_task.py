"""The context that Spark gives to a task, for tests that run a task's code without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import TaskContext


@contextmanager
def spark_task(map_task: int, task: int, streaming_query: str = "") -> Iterator[None]:
    """Run the block as one task of a write; `task` is Spark's task attempt id."""
    before = TaskContext.get()
    TaskContext._setTaskContext(None)
    properties = {"sql.streaming.queryId": streaming_query} if streaming_query else {}
    TaskContext(partitionId=map_task, taskAttemptId=task, localProperties=properties)
    try:
        yield
    finally:
        TaskContext._setTaskContext(before)
