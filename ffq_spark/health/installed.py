"""Checks of what is installed: Java, Python packages, the storage's client, room on disk."""

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
    """The versions of the packages that matter, as far as they are installed here."""
    found = {}
    for name in ("pyspark", "pyarrow", "pandas"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def check_packages(found: dict[str, str]) -> Iterator[Finding]:
    """Packages that are too old, too new or missing.

    >>> [finding.setting for finding in check_packages({"pyspark": "4.3.0", "pyarrow": "17.0"})]
    ['pyarrow']
    """
    for name, least in _NEEDED.items():
        if _numbers(found.get(name, "")) < _numbers(least):
            cost = "this product does not run without it"
            now, remedy = found.get(name, "missing"), f"pip install '{name}>={least}'"
            yield Finding(name, now, f"{least} or newer", cost, remedy)
    pandas = found.get("pandas", "")
    if _numbers(pandas) >= (_PANDAS,):
        cost = "PySpark 4.3 does not support it and warns"
        yield Finding("pandas", pandas, f"below {_PANDAS}", cost, f"pip install 'pandas<{_PANDAS}'")


def check_java(facts: Facts) -> Iterator[Finding]:
    """Spark 4 does not start on an older Java."""
    if facts.java and _numbers(facts.java) < (_JAVA,):
        remedy = f"install Java {_JAVA} or set JAVA_HOME"
        yield Finding("Java", facts.java, f"{_JAVA} or newer", "Spark does not start", remedy)


def check_storage(root: str) -> Iterator[Finding]:
    """Whether the client for a root's storage is there; nothing is read."""
    try:
        Store(root)
    except BadOption as error:
        cost = f"no exchange at {root} can be opened: {error.message}"
        yield Finding("storage", "missing", "the client", cost, "pip install 'ffq-spark[s3]'")


def check_room(facts: Facts, directory: str, free: int) -> Iterator[Finding]:
    """A task that outgrows its buffer goes on through local disk: one buffer each must fit."""
    needed = facts.cores * facts.buffer_bytes
    if free < needed:
        cost = "large write tasks fail when they spill: the disk is full"
        remedy = "free room there, or let SPARK_LOCAL_DIRS (spark.local.dir) name a larger disk"
        wanted = f"at least {needed // MIB} MiB free"
        yield Finding(directory, f"{free // MIB} MiB free", wanted, cost, remedy)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
