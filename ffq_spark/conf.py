"""The Spark settings that ffq_spark uses, each declared once with its reason and its cost.

Sessions, the flags of spark-submit, the plugin's defaults, `doctor` and the documentation use these
declarations.

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
    """A Spark setting, with its value, Spark's default and the texts for the documentation."""

    name: str
    value: str
    default: str
    reason: str
    """What the setting does."""
    cost: str
    """What happens without the setting."""
    others: str
    """The effect of the setting on jobs of the session that use no exchange."""


TUNED = (
    Setting(
        name=SOCKETS,
        value="true",
        default="false",
        reason="The JVM and Python exchange data through a Unix socket instead of TCP. Needs a "
        f"short temporary directory (`{SOCKET_DIR}`).",
        cost="each Python task waits about 40 ms for a delayed acknowledgement; together with an "
        "unfrozen heap of the workers, 256 small tasks took 2.9 times as long",
        others="All Python workers of the application use Unix sockets. They receive the same "
        "bytes, only sooner. Spark reads the setting once per application.",
    ),
)

FAST = {setting.name: setting.value for setting in TUNED}

PLUGIN = (
    Setting(
        name="spark.plugins",
        value="io.ffq.spark.FfqPlugin",
        default="",
        reason="Records task attempts, renews the lease of running writes, cancels writes on "
        "request, and sets those settings of this page that you have not set.",
        cost="task attempts are not recorded, writes cannot be canceled, and a write without a "
        "lease counts as alive for a day; Spark computes a batch's size after every row, so writes "
        "of rows take up to twice as long",
        others="The listener receives the events of all jobs, and records those that write an "
        "exchange.",
    ),
    Setting(
        name=shared_names.Setting.EXTENSIONS,
        value="io.ffq.spark.FfqExtensions",
        default="",
        reason="Lets filters and columns prune each scan. Passes the query's number and the "
        "session's `spark.ffq.*` to each write, and limits the size of its batches. The plugin "
        "adds it.",
        cost="filters and columns do not prune, unless `pruneByFilters` is set: with N partitions, "
        "a read of one key reads up to N times as many bytes",
        others="Plans without an exchange do not change.",
    ),
)

BRIDGE = {setting.name: setting.value for setting in PLUGIN}

JAR = Setting(
    name="spark.jars",
    value="the path that `ffq-spark jar` prints",
    default="",
    reason="The path of the jar with the plugin.",
    cost="Spark does not start, because it cannot find the plugin",
    others="The class path has one more jar, whose classes are in a package of its own.",
)

# Spark's default patterns, and all storage options. Spark shows options in plans and settings in
# its event log. Its default patterns hide `storage.secret`, but not `storage.key`.
STORAGE_NAMES = "^(spark[.]ffq[.])?storage[.]"
REDACTION = {
    "spark.redaction.regex": f"(?i)secret|password|token|access[.]?key|credential|{STORAGE_NAMES}",
    "spark.sql.redaction.options.regex": f"(?i)url|{STORAGE_NAMES}",
}


def redacts_storage(pattern: str) -> bool:
    """Return whether a Java pattern of names hides all storage options, as far as Python can tell.

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
    """Return the path of the plugin's jar, for `spark.jars`."""
    return str(Path(__file__).parent / "jars" / "ffq-spark.jar")


def flags() -> dict[str, str]:
    """Return all settings for spark-submit: the plugin, the tuned settings and redaction."""
    return {"spark.jars": jar_path(), **BRIDGE, **FAST, **REDACTION}


def defaults_file() -> Path | None:
    """Return the path of the `spark-defaults.conf` that Spark reads, or None if it is missing."""
    home = os.environ.get("SPARK_HOME", "")
    directory = os.environ.get("SPARK_CONF_DIR") or (os.path.join(home, "conf") if home else "")
    path = Path(directory, "spark-defaults.conf")
    return path if directory and path.is_file() else None


def read_properties(path: Path) -> dict[str, str]:
    """Read a properties file: each line has a name, then a space, `=` or `:`, then the value."""
    lines = (line.strip() for line in path.read_text().splitlines())
    pairs = (re.split(r"\s*[=:\s]\s*", line, maxsplit=1) for line in lines if line[:1] not in "#!")
    return {name: rest[0] if rest else "" for name, *rest in pairs}


def fast(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the tuned settings that work in an application with these settings.

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
    """Return why Unix sockets would make every Python task fail, or an empty string if they work.

    >>> sockets_fail({"spark.executor.extraJavaOptions": "-Djava.io.tmpdir=/" + 70 * "x"})
    "the temporary directory's path has 71 characters, more than the 61 that a socket allows"
    """
    if sys.platform == "win32":
        return "Python has no Unix sockets on Windows"
    if SOCKET_DIR in settings:
        return ""
    if settings.get("spark.master", "").startswith("yarn"):
        return "the paths of YARN's temporary directories are too long for a socket"
    for name, value in settings.items():
        directory = (
            _TEMPORARY.search(value) if name.endswith(shared_names.Setting.JAVA_OPTIONS) else None
        )
        if directory and len(directory[1]) > SOCKET_DIR_LENGTH:
            return (
                f"the temporary directory's path has {len(directory[1])} characters, more than the "
                f"{SOCKET_DIR_LENGTH} that a socket allows"
            )
    return ""
