"""Helpers for tests of query plans: what a query's final plan holds, and one query in two forms."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from spark_rows import exact

_NODE = re.compile(r"^[\s:+\-|]*(?:\*\(\d+\) )?([A-Za-z]+)(.*)$")


@contextmanager
def conf(spark: Any, **settings: Any) -> Iterator[None]:
    """Settings for a while; `_` in a keyword stands for `.` in the setting's name."""
    names = {name.replace("_", "."): str(value) for name, value in settings.items()}
    before = {name: spark.conf.get(name, None) for name in names}
    for name, value in names.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def executed_nodes(query: Any) -> list[tuple[str, str]]:
    """The nodes of the plan that a query was run by, each by its name and the rest of its line."""
    return nodes_in(query._jdf.queryExecution().executedPlan().toString())


def nodes_in(plan: str) -> list[tuple[str, str]]:
    """Plans of subqueries count; those that adaptive execution began with do not."""
    found = []
    skipped: int | None = None
    for line in plan.splitlines():
        depth = len(line) - len(line.lstrip(" :+-|"))
        if skipped is not None and depth > skipped:
            continue
        skipped = depth - 3 if "== Initial Plan ==" in line else None
        if skipped is None and (node := _NODE.match(line)):
            found.append((node[1], node[2]))
    return found


class Answer:
    """A query's rows, and the plan that they came by."""

    def __init__(self, query: Any) -> None:
        ran = exact(query)
        self.rows = sorted(repr(tuple(row)) for row in ran.collect())
        self.plan = executed_nodes(ran)

    def count(self, name: str) -> int:
        """How many nodes of a name the plan has."""
        return sum(node == name for node, _ in self.plan)

    @property
    def shuffles(self) -> int:
        return self.count("Exchange")

    @property
    def sorting(self) -> int:
        """How many scans of exchanges sort their rows."""
        return sum(node == "FfqScan" and " sorted by [" in rest for node, rest in self.plan)

    @property
    def scans(self) -> list[int]:
        """The partitions of each scan of an exchange; 0 for one in few large tasks."""
        found = [rest for node, rest in self.plan if node == "FfqScan"]
        return [int(m[1]) if (m := re.search(r" (\d+) partitions", rest)) else 0 for rest in found]


def scan_metrics(query: Any) -> list[dict[str, int]]:
    """The metrics of each scan of an exchange, after the query was run."""
    found = []
    pending = [query._jdf.queryExecution().executedPlan()]
    while pending:
        plan = pending.pop()
        kind = plan.getClass().getSimpleName()
        if kind == "AdaptiveSparkPlanExec":
            pending.append(plan.executedPlan())
        elif kind.endswith("QueryStageExec"):
            pending.append(plan.plan())
        elif kind == "FfqScanExec":
            found.append({pair._1(): pair._2().value() for pair in _items(plan.metrics())})
        children = plan.children()
        pending += [children.apply(i) for i in reversed(range(children.size()))]
    return found


def shown_metrics(spark: Any) -> dict[str, str]:
    """What the SQL tab shows of the last query, by the metrics' texts."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    store = spark._jsparkSession.sharedState().statusStore()
    last = store.executionsList().last()
    values = {pair._1(): pair._2() for pair in _items(store.executionMetrics(last.executionId()))}
    return {m.name(): values[m.accumulatorId()] for m in _items(last.metrics())}


def _items(collection: Any) -> list[Any]:
    sequence = collection.toSeq()
    return [sequence.apply(i) for i in range(sequence.size())]
