"""Helpers for tests of query plans: the nodes, partitions and metrics of a query's final plan."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from spark_rows import exact

_NODE = re.compile(r"^[\s:+\-|]*(?:\*\(\d+\) )?([A-Za-z]+)(.*)$")


@contextmanager
def conf(spark: Any, **settings: Any) -> Iterator[None]:
    """Change settings while the block runs; `_` in a keyword stands for `.` in the name."""
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
    """Return the nodes of a query's executed plan, each as its name and the rest of its line."""
    return nodes_in(query._jdf.queryExecution().executedPlan().toString())


def nodes_in(plan: str) -> list[tuple[str, str]]:
    """Parse the nodes of a plan and its subqueries, without adaptive execution's initial plans."""
    nodes = []
    skipped: int | None = None
    for line in plan.splitlines():
        depth = len(line) - len(line.lstrip(" :+-|"))
        if skipped is not None and depth > skipped:
            continue
        skipped = depth - 3 if "== Initial Plan ==" in line else None
        if skipped is None and (node := _NODE.match(line)):
            nodes.append((node[1], node[2]))
    return nodes


class Answer:
    """A query's rows, and the plan that produced them."""

    def __init__(self, query: Any) -> None:
        ran = exact(query)
        self.rows = sorted(repr(tuple(row)) for row in ran.collect())
        self.plan = executed_nodes(ran)

    def count(self, name: str) -> int:
        """Return the number of nodes with this name."""
        return sum(node == name for node, _ in self.plan)

    @property
    def shuffles(self) -> int:
        return self.count("Exchange")

    @property
    def sorting(self) -> int:
        """The number of scans of exchanges that return sorted rows."""
        return sum(node == "FfqScan" and " sorted by [" in rest for node, rest in self.plan)

    @property
    def scans(self) -> list[int]:
        """The partitions of each scan of an exchange; 0 for a scan that is not partitioned."""
        details = [rest for node, rest in self.plan if node == "FfqScan"]
        return [
            int(m[1]) if (m := re.search(r" (\d+) partitions", rest)) else 0 for rest in details
        ]


def scan_metrics(query: Any) -> list[dict[str, int]]:
    """Return the metrics of each scan of an exchange, after the query was run."""
    metrics_of_scans = []
    pending = [query._jdf.queryExecution().executedPlan()]
    while pending:
        plan = pending.pop()
        kind = plan.getClass().getSimpleName()
        if kind == "AdaptiveSparkPlanExec":
            pending.append(plan.executedPlan())
        elif kind.endswith("QueryStageExec"):
            pending.append(plan.plan())
        elif kind == "FfqScanExec":
            metrics_of_scans.append(
                {pair._1(): pair._2().value() for pair in _items(plan.metrics())}
            )
        children = plan.children()
        pending += [children.apply(i) for i in reversed(range(children.size()))]
    return metrics_of_scans


def shown_metrics(spark: Any) -> dict[str, str]:
    """Return the metrics that the SQL tab shows for the last query, by their names."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    store = spark._jsparkSession.sharedState().statusStore()
    last = store.executionsList().last()
    values = {pair._1(): pair._2() for pair in _items(store.executionMetrics(last.executionId()))}
    return {m.name(): values[m.accumulatorId()] for m in _items(last.metrics())}


def _items(collection: Any) -> list[Any]:
    sequence = collection.toSeq()
    return [sequence.apply(i) for i in range(sequence.size())]
