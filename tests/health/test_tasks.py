"""Checks of how tasks run: the rows of a batch and the memory of an executor."""

from __future__ import annotations

import pytest
from health_scene import GOOD, flagged

from ffq_spark.conf import SOCKET_DIR
from ffq_spark.health.checks import check
from ffq_spark.health.facts import Facts

FOUR = {"spark.executor.cores": "4"}


ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"


@pytest.mark.parametrize(
    ("rows", "wrong"), [("0", True), ("100", True), ("2000000", True), ("50000", False)]
)
def test_the_rows_of_a_batch_matter_where_the_plugin_does_not_make_it(
    rows: str, wrong: bool
) -> None:
    assert flagged(**{ROWS: rows}) == set()
    assert flagged(**{ROWS: rows}, spark="4.2.1") == ({"Spark", ROWS} if wrong else {"Spark"})


@pytest.mark.parametrize(
    ("settings", "short"),
    [
        ({"spark.master": "yarn"}, True),
        ({"spark.master": "yarn", "spark.executor.memory": "5200m"}, False),
        ({"spark.master": "yarn", **FOUR, "spark.executor.memory": "5200m"}, True),
        (
            {
                "spark.master": "yarn",
                **FOUR,
                "spark.executor.memory": "5200m",
                "spark.task.cpus": "4",
            },
            False,
        ),
        (
            {"spark.master": "yarn", **FOUR, "spark.executor.memory": "20g"},
            False,
        ),
        (
            {"spark.master": "k8s://h", **FOUR, "spark.executor.memory": "6g"},
            False,
        ),
        ({"spark.master": "k8s://h", **FOUR, "spark.executor.memory": "4g"}, True),
        ({"spark.master": "yarn", "spark.executor.memoryOverhead": "200"}, True),
        ({"spark.master": "spark://h:7077", **FOUR}, False),
        ({"spark.master": "yarn", "spark.ffq.maxBufferBytes": "1g"}, True),
        ({"spark.executor.pyspark.memory": "1000m"}, True),
        ({"spark.executor.pyspark.memory": "1g"}, False),
    ],
)
def test_memory_beside_the_heap_is_for_the_buffers_of_all_cores(
    settings: dict[str, str], short: bool
) -> None:
    findings = check(Facts({**GOOD, SOCKET_DIR: "/tmp", **settings}))
    assert [("emory" in finding.setting) for finding in findings] == [True] * short
