"""Statements on a session that only records what it is asked for; the rest needs Spark."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from ffq_spark.errors import Unsupported
from ffq_spark.service.statements.spark_jobs import SparkJobs, failure_message


def test_a_session_without_a_driver_is_refused() -> None:
    with pytest.raises(Unsupported, match="classic Spark session"):
        SparkJobs(object(), "/results", {})


@pytest.mark.parametrize("fails", [False, True])
def test_a_statement_is_written_below_the_root_under_its_tag(fails: bool) -> None:
    spark = mock.MagicMock()
    writer = spark.table.return_value.write.format.return_value.mode.return_value
    writer.option.return_value = writer
    writer.save.side_effect = ValueError("no") if fails else None
    jobs = SparkJobs(spark, "/results/", {"key": "k", "retries": 3})
    if fails:
        with pytest.raises(ValueError, match="no"):
            jobs.run(7, None, "daily")
    else:
        jobs.run(7, None, "daily")
    spark.table.assert_called_once_with("daily")
    options: list[Any] = [call.args for call in writer.option.call_args_list]
    assert options == [("partitions", "1"), ("storage.key", "k"), ("storage.retries", "3")]
    writer.save.assert_called_once_with("/results/7")
    context = spark._sc
    context.addJobTag.assert_called_once_with("ffq-service-7")
    context.removeJobTag.assert_called_once_with("ffq-service-7")
    jobs.cancel(7)
    context.cancelJobsWithTag.assert_called_once_with("ffq-service-7")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[PARSE_SYNTAX_ERROR] near x\n\nJVM stacktrace:\n\tat org", "[PARSE_SYNTAX_ERROR] near x"),
        (
            "Job aborted: Traceback\n[FFQ_BAD_OPTION] two columns\nmore",
            "[FFQ_BAD_OPTION] two columns",
        ),
        ("", "ValueError"),
    ],
)
def test_a_failure_is_told_without_the_stack(text: str, message: str) -> None:
    assert failure_message(ValueError(text)) == message
