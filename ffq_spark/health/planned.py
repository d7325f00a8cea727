"""A session that has yet to start, from what spark-submit would be given on this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from ffq_spark import conf
from ffq_spark.exchange.compute.spill import spill_directory
from ffq_spark.health.checks import check
from ffq_spark.health.facts import Facts, Finding
from ffq_spark.health.installed import check_packages, check_room, check_storage, versions


def planned(given: Mapping[str, str], file: Path | None = None) -> Facts:
    """The facts of a planned session: flags win over the file, and one file replaces the default.

    >>> planned({"spark.master": "local[1]"}).master
    'local[1]'
    """
    source = file or conf.defaults_file()
    settings = {**(conf.read_properties(source) if source else {}), **given}
    if "PYSPARK_UDS_MODE" in os.environ:
        settings.setdefault(conf.SOCKETS, os.environ["PYSPARK_UDS_MODE"])
    return Facts(settings, spark=versions().get("pyspark", ""), java=_java())


def check_planned(facts: Facts, root: str = "") -> Iterator[Finding]:
    """All that can be known before the session starts."""
    yield from check(facts)
    yield from check_packages(versions())
    if not facts.java:
        cost, remedy = "Spark does not start", "install Java 17 or set JAVA_HOME"
        yield Finding("Java", "missing", "17 or newer", cost, remedy)
    if root:
        yield from check_storage(root)
    if facts.master.startswith("local"):
        place = spill_directory()
        yield from check_room(facts, place, shutil.disk_usage(place).free)


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    command = shutil.which(os.path.join(home, "bin", "java") if home else "java")
    if command is None:
        return ""
    done = subprocess.run([command, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "([^"]+)"', done.stderr)
    return found[1] if found else ""
