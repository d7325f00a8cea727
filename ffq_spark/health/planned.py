"""The facts of the session that spark-submit would start on this machine."""

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
from ffq_spark.health.installed import check_disk_space, check_packages, check_storage, versions


def planned(given_settings: Mapping[str, str], file: Path | None = None) -> Facts:
    """Collect the facts of a planned session; given settings override those of the file.

    The file replaces the default one, `spark-defaults.conf` in SPARK_CONF_DIR.

    >>> planned({"spark.master": "local[1]"}).master
    'local[1]'
    """
    source = file or conf.defaults_file()
    settings = {**(conf.read_properties(source) if source else {}), **given_settings}
    if "PYSPARK_UDS_MODE" in os.environ:
        settings.setdefault(conf.SOCKETS, os.environ["PYSPARK_UDS_MODE"])
    return Facts(settings, spark=versions().get("pyspark", ""), java=_java())


def check_planned(facts: Facts, root: str = "") -> Iterator[Finding]:
    """Yield all findings that can be made before the session starts."""
    yield from check(facts)
    yield from check_packages(versions())
    if not facts.java:
        cost, remedy = "Spark does not start", "install Java 17 or set JAVA_HOME"
        yield Finding("Java", "missing", "17 or newer", cost, remedy)
    if root:
        yield from check_storage(root)
    if facts.master.startswith("local"):
        directory = spill_directory()
        yield from check_disk_space(facts, directory, shutil.disk_usage(directory).free)


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    command = shutil.which(os.path.join(home, "bin", "java") if home else "java")
    if command is None:
        return ""
    done = subprocess.run([command, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "([^"]+)"', done.stderr)
    return version[1] if version else ""
