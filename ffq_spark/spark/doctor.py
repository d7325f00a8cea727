"""`ffq_spark.doctor(spark)`: a running session looked at from inside, its workers included."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql.functions import udf

from ffq_spark.health.checks import check
from ffq_spark.health.facts import Facts, Finding
from ffq_spark.health.installed import check_packages, check_room, check_storage, versions
from ffq_spark.spark.session import session_conf

_PROBES = 16


def doctor(spark: Any, root: str = "") -> list[Finding]:
    """What of a running session should be otherwise, and what it costs; runs one small job.

    With `root`, also whether the driver and the workers can open exchanges there. Nothing is read.
    """
    facts = Facts(session_conf(spark), spark=spark.version, java=_java(spark), running=True)
    found = [*check(facts), *check_packages(versions())]
    if root:
        found += check_storage(root)
    return found + list(_check_workers(spark, facts, root))


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
        cost = f"no Python task runs: {_cause(error)}"
        yield Finding("PYSPARK_PYTHON", "", sys.executable, cost, remedy)
        return
    for answer in answers:
        where = f"{answer['python']} on {answer['host']}"
        if answer["error"]:
            cost = f"no task of an exchange runs there: {answer['error']}"
            yield Finding("PYSPARK_PYTHON", where, sys.executable, cost, remedy)
        else:
            yield from check_room(facts, f"{answer['spill']} on {answer['host']}", answer["free"])


def _cause(error: Exception) -> str:
    """What Spark says of the task that failed, else the error's first line."""
    text = str(error).strip() or type(error).__name__
    lost = re.search(r"Lost task .*?\): (.*)", text)
    return lost[1] if lost else text.splitlines()[0]


def _ask(spark: Any, root: str) -> list[dict[str, Any]]:
    """What workers say of themselves, once for each machine and interpreter."""
    tasks = spark.range(0, _PROBES, 1, _PROBES)
    rows = tasks.select(udf(_probe(root), "string", useArrow=False)("id").alias("answer")).collect()
    answers = {row.answer: None for row in rows}
    found = [json.loads(answer) for answer in answers]
    return list({(one["host"], one["python"], one["error"]): one for one in found}.values())


def _probe(root: str) -> Callable[[int], str]:
    """A function that travels by value: the workers may not have this package."""

    def probe(_: int) -> str:
        import json
        import shutil
        import socket
        import sys

        told: dict[str, Any] = {"host": socket.gethostname(), "python": sys.executable}
        told |= {"error": "", "spill": "", "free": 0}
        try:
            import pyarrow  # noqa: F401

            from ffq_spark.exchange.compute.spill import spill_directory
            from ffq_spark.store import Store

            told["spill"] = spill_directory()
            told["free"] = shutil.disk_usage(told["spill"]).free >> 20 << 20
            if root:
                Store(root)
        except Exception as error:
            told["error"] = f"{type(error).__name__}: {error}"
        return json.dumps(told)

    return probe
