"""Show the tasks of a read: the form `plan ROOT` of the verb plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ffq_spark.cli.output import Output, human_bytes
from ffq_spark.exchange.scan.read_plan import HeavyPartition, ReadPlan, TaskPlan


def show_read_plan(output: Output, plan: ReadPlan) -> None:
    """Print the tasks of a read, their totals, and its heavy partitions."""
    if output.json:
        names = ("requests", "read_bytes", "largest", "median")
        output.record({**asdict(plan), **{name: getattr(plan, name) for name in names}})
        return
    columns = ["task", "partitions", "shard", "parts", "rows", "bytes", "requests"]
    by = " by hash" if plan.split == "hash" else ""
    output.table(columns, [_row(number, task, by) for number, task in enumerate(plan.tasks)])
    output.line(_summary(plan))
    for heavy in plan.heavy:
        if heavy.advice:
            output.line(_warning(heavy))


def _row(number: int, task: TaskPlan, by: str) -> Sequence[Any]:
    first, last = task.partitions[0], task.partitions[-1]
    return (
        number,
        first if first == last else f"{first}-{last}",
        f"{task.shard + 1} of {task.shards}{by}" if task.shards > 1 else None,
        task.parts,
        task.rows,
        human_bytes(task.bytes),
        task.requests,
    )


def _summary(plan: ReadPlan) -> str:
    amount = human_bytes(plan.bytes)
    if plan.read_bytes > plan.bytes:
        amount = f"{human_bytes(plan.read_bytes)} of {amount} (some parts several times)"
    sizes = f"largest task {human_bytes(plan.largest)}, median {human_bytes(plan.median)}"
    return f"{len(plan.tasks)} tasks read {amount} with {plan.requests} requests; {sizes}"


def _warning(heavy: HeavyPartition) -> str:
    size = human_bytes(heavy.bytes)
    return f"warning: partition {heavy.partition} has {size}: {heavy.advice}"
