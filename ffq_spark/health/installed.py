"""Checks of a machine: Java, Python packages, storage client, free disk space."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata

from ffq_spark.errors import BadOption
from ffq_spark.health.facts import Facts, Finding
from ffq_spark.store import Store

MIB = 1 << 20
_JAVA = 17
_NEEDED = {"pyspark": "4.1", "pyarrow": "18"}
_PANDAS = 3


def versions() -> dict[str, str]:
    """Return the versions of pyspark, pyarrow and pandas; a missing package is left out."""
    installed = {}
    for name in ("pyspark", "pyarrow", "pandas"):
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return installed


def check_packages(installed: dict[str, str]) -> Iterator[Finding]:
    """Find packages that are too old, too new or missing.

    >>> [finding.setting for finding in check_packages({"pyspark": "4.3.0", "pyarrow": "17.0"})]
    ['pyarrow']
    """
    for name, least in _NEEDED.items():
        if _numbers(installed.get(name, "")) < _numbers(least):
            cost = f"ffq_spark does not run without {name} {least}"
            now, remedy = installed.get(name, "missing"), f"pip install '{name}>={least}'"
            yield Finding(name, now, f"{least} or newer", cost, remedy)
    pandas = installed.get("pandas", "")
    if _numbers(pandas) >= (_PANDAS,):
        cost = f"PySpark 4.3 does not support pandas {_PANDAS} and prints warnings"
        yield Finding("pandas", pandas, f"below {_PANDAS}", cost, f"pip install 'pandas<{_PANDAS}'")


def check_java(facts: Facts) -> Iterator[Finding]:
    """Find a Java that is too old for Spark 4."""
    if facts.java and _numbers(facts.java) < (_JAVA,):
        remedy = f"install Java {_JAVA} or set JAVA_HOME"
        yield Finding("Java", facts.java, f"{_JAVA} or newer", "Spark does not start", remedy)


def check_storage(root: str) -> Iterator[Finding]:
    """Find a missing storage client for a root; nothing is read."""
    try:
        Store(root)
    except BadOption as error:
        cost = f"no exchange at {root} can be opened: {error.message}"
        yield Finding(
            "storage", "missing", "the storage client", cost, "pip install 'ffq-spark[s3]'"
        )


def check_disk_space(facts: Facts, directory: str, free: int) -> Iterator[Finding]:
    """Find too little disk space: each task may spill at least one full buffer to local disk."""
    needed = facts.cores * facts.buffer_bytes
    if free < needed:
        cost = "large write tasks fail when they spill, because the disk is full"
        remedy = "free disk space, or set SPARK_LOCAL_DIRS (spark.local.dir) to a larger disk"
        wanted = f"at least {needed // MIB} MiB free"
        yield Finding(directory, f"{free // MIB} MiB free", wanted, cost, remedy)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
