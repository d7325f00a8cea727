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

from ffq_spark import shared_names

SPARK = shared_names.Setting.SPARK_LINE
SOCKETS = shared_names.Setting.SOCKETS
SOCKET_DIR = shared_names.Setting.SOCKET_DIR
SOCKET_DIR_LENGTH = shared_names.Setting.SOCKET_DIR_LENGTH

_TEMPORARY = re.compile(r"-Djava\.io\.tmpdir=[\"']?([^\s\"']+)")


@dataclass(frozen=True)
class Setting:
    """One setting of Spark: its value, Spark's default, its use, the cost without, other jobs."""

    name: str
    value: str
    default: str
    reason: str
    cost: str
    others: str
    """What the setting means for jobs of the session that touch no exchange."""


TUNED = (
    Setting(
        name=SOCKETS,
        value="true",
        default="false",
        reason="The JVM and Python talk through a Unix socket, not through TCP. Needs a short "
        f"temporary directory (`{SOCKET_DIR}`).",
        cost="each Python task waits about 40 ms for a delayed acknowledgement; with the workers' "
        "heap not frozen either, 256 small tasks took 2.9 times as long",
        others="All Python workers of the application talk through Unix sockets: the same bytes, "
        "sooner. Spark reads the setting once for the application.",
    ),
)

FAST = {setting.name: setting.value for setting in TUNED}

PLUGIN = (
    Setting(
        name="spark.plugins",
        value="io.ffq.spark.FfqPlugin",
        default="",
        reason="Records task attempts, keeps the lease of running writes, carries out cancel "
        "requests, and sets the settings above and below where you have not.",
        cost="no attempts, no cancel, and a write without a lease counts as alive for a day; Spark "
        "computes a batch's size after every row, so writes of rows take up to twice as long",
        others="The listener hears of all jobs and records those that write an exchange.",
    ),
    Setting(
        name=shared_names.Setting.EXTENSIONS,
        value="io.ffq.spark.FfqExtensions",
        default="",
        reason="Gives each scan a plan of its own that filters prune, and each write its number, "
        "the session's `spark.ffq.*` and batches bounded in bytes. The plugin adds it by itself.",
        cost="filters and columns prune nothing, unless `pruneByFilters` is set: with N partitions "
        "up to N times the bytes for the rows of one key",
        others="Plans without an exchange stay as they are.",
    ),
)

BRIDGE = {setting.name: setting.value for setting in PLUGIN}

JAR = Setting(
    name="spark.jars",
    value="the path that `ffq-spark jar` prints",
    default="",
    reason="Where the plugin lies.",
    cost="Spark does not start: it cannot find the plugin",
    others="One more jar on the class path, with classes of its own names.",
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
    refused = (
        {SOCKETS}
        if shared_names.Setting.SOCKETS_VARIABLE in os.environ or sockets_fail(settings)
        else set()
    )
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
        directory = (
            _TEMPORARY.search(value) if name.endswith(shared_names.Setting.JAVA_OPTIONS) else None
        )
        if directory and len(directory[1]) > SOCKET_DIR_LENGTH:
            return (
                f"the temporary directory's path has {len(directory[1])} characters, and a "
                f"socket's leaves room for {SOCKET_DIR_LENGTH}"
            )
    return ""
