"""The task log of a query: the events that the plugin's listener saw, as JSON lines in files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ffq_spark.format import paths
from ffq_spark.shared_names import StewardEvent, TaskState
from ffq_spark.store import Store

Event = Mapping[str, Any]


@dataclass(frozen=True)
class SparkTask:
    """One task attempt as Spark's scheduler reported it."""

    task: int
    map_task: int
    stage: int
    stage_attempt: int
    attempt_number: int
    executor: str
    host: str
    speculative: bool
    launch_ms: int
    finish_ms: int | None = None
    state: str = TaskState.RUNNING
    reason: str = ""

    @property
    def attempt(self) -> int:
        """Return the number of the attempt directory that this task writes."""
        return paths.spark_attempt(self.task)


@dataclass
class TaskLog:
    """The tasks of one query, the task counts of its stages, and all other events."""

    tasks: dict[int, SparkTask] = field(default_factory=dict)
    totals: dict[int, int] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    def add(self, event: Event) -> None:
        """Add one event; the end of a task may arrive without its start."""
        name = event.get(StewardEvent.KIND)
        if name in (StewardEvent.TASK_START, StewardEvent.TASK_END):
            names = SparkTask.__dataclass_fields__
            task = SparkTask(**{key: value for key, value in event.items() if key in names})
            if not all(isinstance(n, int) for n in (task.task, task.map_task, task.stage)):
                raise TypeError(f"task, map_task and stage must be integers: {event}")
            earlier = self.tasks.get(task.task)
            if earlier is None or earlier.state == TaskState.RUNNING:
                self.tasks[task.task] = task
        elif name == StewardEvent.JOB_START:
            self.totals[int(event["stage"])] = int(event["tasks"])
            self.events.append(event)
        else:
            self.events.append(event)

    def write_stage(self, attempts: Sequence[int]) -> int | None:
        """Return the Spark stage that wrote these attempts, or else the last stage.

        A write may run other stages too, for example for subqueries.
        """
        for attempt in attempts:
            task = self.tasks.get(attempt - 1)
            if task is not None:
                return task.stage
        return max(self.totals, default=None)


def write_events(
    store: Store, initiator: str, query: int, part: int, events: Sequence[Event]
) -> None:
    """Write one file of a query's task log."""
    lines = "".join(json.dumps(event) + "\n" for event in events)
    store.write(paths.task_log(initiator, query, part), [lines.encode()])


def read_logs(store: Store, query: int | None = None) -> dict[int, TaskLog]:
    """Read the task logs of all queries, or of one.

    Skip lines that cannot be read: the logs only explain what storage decides.
    """
    files: list[tuple[int, str]] = []
    for initiator in store.list(paths.ATTEMPTS):
        folder = f"{paths.ATTEMPTS}/{initiator.name}"
        for entry in store.list(folder):
            number = paths.parse_number(entry.name.split(".", 1)[0])
            if number is not None and query in (None, number):
                files.append((number, f"{folder}/{entry.name}"))
    logs: dict[int, TaskLog] = {}
    pieces = store.read_many([path for _, path in files])
    for (number, _), data in zip(files, pieces, strict=True):
        log = logs.setdefault(number, TaskLog())
        for line in (data or b"").splitlines():
            try:
                log.add(json.loads(line))
            except (ValueError, TypeError, KeyError, AttributeError):
                continue
    return logs
