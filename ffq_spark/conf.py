"""The Spark settings that belong to this product, each declared once with its reason and its cost.

Sessions, spark-submit's flags, the plugin's own defaults, `doctor` and the documentation are all
made from here.

>>> sorted(BRIDGE)
['spark.plugins', 'spark.sql.extensions']
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SPARK = "4.3."
"""The Spark that the jar is built for; on others the bridge stays off."""

SOCKETS = "spark.python.unix.domain.socket.enabled"
SOCKET_DIR = "spark.python.unix.domain.socket.dir"
# A socket's path has at most 104 characters, and Spark's file name takes 43 of them.
SOCKET_DIR_LENGTH = 61

_TEMPORARY = re.compile(r"-Djava\.io\.tmpdir=[\"']?([^\s\"']+)")


@dataclass(frozen=True)
class Setting:
    """One setting of Spark: what we set, what Spark does without, why, and what that costs."""

    name: str
    value: str
    default: str
    reason: str
    cost: str


TUNED = (
    Setting(
        name="spark.sql.execution.arrow.maxBytesPerBatch",
        value="2147483647",
        default="64MB",
        reason="Exactly this value switches off a computation of the batch's size after every row; "
        "`maxRecordsPerBatch` still bounds a batch.",
        cost="writes take about 2.6 times as long (10 M rows: 6.7 s instead of 2.6 s)",
    ),
    Setting(
        name=SOCKETS,
        value="true",
        default="false",
        reason="The JVM and Python talk through a Unix socket, not through TCP. Needs a short "
        f"temporary directory (`{SOCKET_DIR}`).",
        cost="each Python task waits about 40 ms for a delayed acknowledgement; with the workers' "
        "heap not frozen either, 256 small tasks took 2.9 times as long",
    ),
    Setting(
        name="spark.sql.python.filterPushdown.enabled",
        value="true",
        default="false",
        reason="Lets `pruneByFilters` prune without the plugin, whose scans need no setting: "
        "equality on keys opens one partition, ranges skip parts.",
        cost="without the plugin every filtered read opens every part of the exchange: with N "
        "partitions up to N times the bytes for the rows of one key",
    ),
)

FAST = {setting.name: setting.value for setting in TUNED}

PLUGIN = (
    Setting(
        name="spark.plugins",
        value="io.ffq.spark.FfqPlugin",
        default="",
        reason="Records task attempts, keeps the lease of running writes, carries out cancel "
        "requests, and sets the tuned settings above where nobody has.",
        cost="no attempts, no cancel, and a write without a lease counts as alive for a day",
    ),
    Setting(
        name="spark.sql.extensions",
        value="io.ffq.spark.FfqExtensions",
        default="",
        reason="Gives each scan a plan of its own and each write its number and the session's "
        "`spark.ffq.*`. The plugin adds it by itself.",
        cost="filters and columns prune nothing, unless `pruneByFilters` is set",
    ),
)

BRIDGE = {setting.name: setting.value for setting in PLUGIN}

JAR = Setting(
    name="spark.jars",
    value="the path that `ffq-spark jar` prints",
    default="",
    reason="Where the plugin lies.",
    cost="Spark does not start: it cannot find the plugin",
)

# Spark's own patterns, and everything that reaches storage: Spark knows `storage.secret` for a
# secret, but not `storage.key`, and shows options in plans and settings in its event log.
STORAGE_NAMES = "^(spark[.]ffq[.])?storage[.]"
REDACTION = {
    "spark.redaction.regex": f"(?i)secret|password|token|access[.]?key|credential|{STORAGE_NAMES}",
    "spark.sql.redaction.options.regex": f"(?i)url|{STORAGE_NAMES}",
}


def redacts_storage(pattern: str) -> bool:
    """Whether a pattern of names hides every storage option, as far as Python can tell.

    >>> redacts_storage("(?i)secret|password"), redacts_storage(REDACTION["spark.redaction.regex"])
    (False, True)
    """
    if not pattern:
        return False
    try:
        return all(re.search(pattern, f"{start}storage.key") for start in ("", "spark.ffq."))
    except re.error:
        return STORAGE_NAMES in pattern


def jar_path() -> str:
    """Where the plugin's jar lies, as `spark.jars` wants it."""
    return str(Path(__file__).parent / "jars" / "ffq-spark.jar")


def flags() -> dict[str, str]:
    """Everything that spark-submit needs for the fast path and the bridge."""
    return {"spark.jars": jar_path(), **BRIDGE, **FAST, **REDACTION}


def defaults_file() -> Path | None:
    """The `spark-defaults.conf` that Spark reads by itself, if there is one."""
    home = os.environ.get("SPARK_HOME", "")
    place = os.environ.get("SPARK_CONF_DIR") or (os.path.join(home, "conf") if home else "")
    path = Path(place, "spark-defaults.conf")
    return path if place and path.is_file() else None


def read_properties(path: Path) -> dict[str, str]:
    """The settings in a properties file: a name, then a space, `=` or `:`, then the value."""
    lines = (line.strip() for line in path.read_text().splitlines())
    pairs = (re.split(r"\s*[=:\s]\s*", line, maxsplit=1) for line in lines if line[:1] not in "#!")
    return {name: rest[0] if rest else "" for name, *rest in pairs}


def fast(settings: Mapping[str, str]) -> dict[str, str]:
    """The tuned settings that an application with these settings can bear.

    >>> SOCKETS in fast({"spark.master": "local[2]"}), SOCKETS in fast({"spark.master": "yarn"})
    (True, False)
    """
    refused = {SOCKETS} if "PYSPARK_UDS_MODE" in os.environ or sockets_fail(settings) else set()
    return {name: value for name, value in FAST.items() if name not in refused}


def sockets_fail(settings: Mapping[str, str]) -> str:
    """Why Unix sockets would make every Python task fail, or nothing if they would not.

    >>> sockets_fail({"spark.executor.extraJavaOptions": "-Djava.io.tmpdir=/" + 70 * "x"})
    "the temporary directory's path has 71 characters, and a socket's leaves room for 61"
    """
    if sys.platform == "win32":
        return "Python has no Unix sockets on Windows"
    if SOCKET_DIR in settings:
        return ""
    if settings.get("spark.master", "").startswith("yarn"):
        return "YARN's temporary directories have paths too long for a socket"
    for name, value in settings.items():
        directory = _TEMPORARY.search(value) if name.endswith("JavaOptions") else None
        if directory and len(directory[1]) > SOCKET_DIR_LENGTH:
            return (
                f"the temporary directory's path has {len(directory[1])} characters, and a "
                f"socket's leaves room for {SOCKET_DIR_LENGTH}"
            )
    return ""
