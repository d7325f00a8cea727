"""`ffq_spark.doctor(spark)`: checks of a running session and of its Python workers."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql.functions import udf

from ffq_spark.health.checks import check
from ffq_spark.health.facts import Facts, Finding
from ffq_spark.health.installed import check_disk_space, check_packages, check_storage, versions
from ffq_spark.spark.session import session_conf

_PROBES = 16


def doctor(spark: Any, root: str = "") -> list[Finding]:
    """List the settings that a running session should change, and what each costs.

    Runs one small job. With `root`, also check that the driver and the workers have the storage
    client for exchanges at that path; nothing is read.
    """
    facts = Facts(session_conf(spark), spark=spark.version, java=_java(spark), running=True)
    findings = [*check(facts), *check_packages(versions())]
    if root:
        findings += check_storage(root)
    return findings + list(_check_workers(spark, facts, root))


def _java(spark: Any) -> str:
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        return ""
    return str(getattr(jvm, "java.lang.System").getProperty("java.version"))


def _check_workers(spark: Any, facts: Facts, root: str) -> Iterator[Finding]:
    remedy = "install the same packages on all machines, and set PYSPARK_PYTHON"
    try:
        answers = _ask(spark, root)
    except Exception as error:
        cost = f"Python tasks fail: {_cause(error)}"
        yield Finding("PYSPARK_PYTHON", "", sys.executable, cost, remedy)
        return
    for answer in answers:
        worker = f"{answer['python']} on {answer['host']}"
        if answer["error"]:
            cost = f"tasks that read or write an exchange fail on it: {answer['error']}"
            yield Finding("PYSPARK_PYTHON", worker, sys.executable, cost, remedy)
        else:
            yield from check_disk_space(
                facts, f"{answer['spill']} on {answer['host']}", answer["free"]
            )


def _cause(error: Exception) -> str:
    """Return Spark's reason why a task was lost, or else the first line of the error."""
    text = str(error).strip() or type(error).__name__
    lost = re.search(r"Lost task .*?\): (.*)", text)
    return lost[1] if lost else text.splitlines()[0]


def _ask(spark: Any, root: str) -> list[dict[str, Any]]:
    """Collect the answers of the workers, one for each machine and interpreter."""
    tasks = spark.range(0, _PROBES, 1, _PROBES)
    rows = tasks.select(udf(_probe(root), "string", useArrow=False)("id").alias("answer")).collect()
    answers = [json.loads(text) for text in dict.fromkeys(row.answer for row in rows)]
    return list({(a["host"], a["python"], a["error"]): a for a in answers}.values())


def _probe(root: str) -> Callable[[int], str]:
    """Create a function that is sent by value, because workers may lack this package."""

    def probe(_: int) -> str:
        import json
        import shutil
        import socket
        import sys

        answer: dict[str, Any] = {"host": socket.gethostname(), "python": sys.executable}
        answer |= {"error": "", "spill": "", "free": 0}
        try:
            import pyarrow  # noqa: F401

            from ffq_spark.exchange.compute.spill import spill_directory
            from ffq_spark.store import Store

            answer["spill"] = spill_directory()
            answer["free"] = shutil.disk_usage(answer["spill"]).free >> 20 << 20
            if root:
                Store(root)
        except Exception as error:
            answer["error"] = f"{type(error).__name__}: {error}"
        return json.dumps(answer)

    return probe
