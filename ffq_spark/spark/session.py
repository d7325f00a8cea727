"""Settings for a Spark session, and the source's registration where discovery cannot find it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar

from ffq_spark.options import CONF_PREFIX
from ffq_spark.spark.source import FfqShuffleSource

Builder = TypeVar("Builder")

_RECOMMENDED = {
    # Exactly this value switches off a size computation after every row.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    # Over TCP each Python task waits about 40 ms for a delayed acknowledgement.
    "spark.python.unix.domain.socket.enabled": "true",
    # Lets equality on keys prune partitions and ranges prune parts.
    "spark.sql.python.filterPushdown.enabled": "true",
}


def recommended_conf() -> dict[str, str]:
    """The settings that make Python sources fast.

    >>> recommended_conf()["spark.sql.python.filterPushdown.enabled"]
    'true'
    """
    return dict(_RECOMMENDED)


def configure(builder: Builder) -> Builder:
    """Set the recommended conf on a `SparkSession.builder`, wherever the user has not.

    >>> from pyspark.sql import SparkSession
    >>> builder = SparkSession.Builder().config("spark.python.unix.domain.socket.enabled", "false")
    >>> configure(builder)._options["spark.python.unix.domain.socket.enabled"]
    'false'
    """
    target: Any = builder
    taken = {*target._options, *_submitted(), *_defaults_file()}
    for name, value in _RECOMMENDED.items():
        if name not in taken:
            target.config(name, value)
    return builder


def _submitted() -> set[str]:
    """What spark-submit gave this driver; its JVM runs already."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return set()
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return {name for name, _ in SparkConf().getAll()}


def _defaults_file() -> set[str]:
    """The names in `spark-defaults.conf`, which a builder's own settings would override."""
    home = os.environ.get("SPARK_HOME", "")
    place = os.environ.get("SPARK_CONF_DIR") or (os.path.join(home, "conf") if home else "")
    path = Path(place, "spark-defaults.conf")
    if not place or not path.is_file():
        return set()
    lines = (line.strip() for line in path.read_text().splitlines())
    return {line.replace("=", " ").split()[0] for line in lines if line and line[0] != "#"}


def register(spark: Any) -> None:
    """Register the source in a session, with the session's `spark.ffq.*` settings as of now.

    Needed where the source is not found by itself (a `--py-files` zip), and for `spark.ffq.*` conf
    to count; call it again after changing such conf, and in each `newSession()` that should see it.
    """
    settings = {name: value for name, value in _conf(spark).items() if name.startswith(CONF_PREFIX)}
    settings["spark.app.id"] = _conf(spark).get("spark.app.id", "")
    kind = type("FfqShuffleSource", (FfqShuffleSource,), {"conf": settings})
    spark.dataSource.register(kind)


def _conf(spark: Any) -> dict[str, str]:
    found = spark.conf.getAll
    return dict(found() if callable(found) else found)
