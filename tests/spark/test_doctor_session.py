"""Diagnosis of a running session, from inside and through Spark's REST service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import start_spark
from s3server import free_ports

import ffq_spark as ffq
from ffq_spark.health.checks import check
from ffq_spark.health.rest import running

pytestmark = pytest.mark.spark

ARROW = "spark.sql.execution.arrow.maxBytesPerBatch"


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    (port,) = free_ports(1)
    session = start_spark(spark_ui_enabled="true", spark_ui_port=str(port))
    yield session
    session.stop()


def test_a_configured_session_has_nothing_to_mend(spark: Any) -> None:
    assert ffq.doctor(spark) == ffq.doctor(spark, "s3://bucket/x") == []


def test_the_rest_service_tells_the_same(spark: Any) -> None:
    url = spark.sparkContext.uiWebUrl
    facts = running(url)
    assert facts.spark == spark.version and facts.java.startswith("17")
    assert facts.settings["spark.master"] == "local[2]" and list(check(facts)) == []
    assert facts == running(url, spark.sparkContext.applicationId)


def test_a_setting_of_the_session_counts(spark: Any) -> None:
    spark.conf.set(ARROW, "2147483647")
    try:
        (finding,) = ffq.doctor(spark)
    finally:
        spark.conf.unset(ARROW)
    assert (finding.setting, finding.now, finding.wanted) == (ARROW, "2147483647", "64MB")


def test_workers_that_cannot_run_tasks_are_found(spark: Any, tmp_path: Path) -> None:
    """The doctor reports workers whose pyarrow is broken or whose interpreter does not exist."""
    (tmp_path / "pyarrow.py").write_text("raise ImportError('no pyarrow here')\n")
    worker = tmp_path / "python"
    context = spark.sparkContext
    usual = context.pythonExec
    worker.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}:$PYTHONPATH exec {usual} "$@"\n')
    worker.chmod(0o755)
    try:
        for interpreter, text in ((str(worker), "no pyarrow here"), ("/no/python", "/no/python")):
            context.pythonExec = interpreter
            (finding,) = ffq.doctor(spark)
            assert finding.setting == "PYSPARK_PYTHON" and text in finding.cost
    finally:
        context.pythonExec = usual


def test_a_root_without_a_client_is_found_here_and_on_the_workers(spark: Any) -> None:
    assert [f.setting for f in ffq.doctor(spark, "nosuch://x")] == ["storage", "PYSPARK_PYTHON"]
