"""Settings for a Spark session, and the source's registration where discovery cannot find it."""

from __future__ import annotations

import os
from typing import Any, TypeVar

import pyspark
from pyspark import SparkConf, SparkContext

from ffq_spark import conf
from ffq_spark.options import CONF_PREFIX, refuse_unknown_settings
from ffq_spark.spark.source import FfqShuffleSource

Builder = TypeVar("Builder")

# Settings that hold a list: ours joins what the user has.
_LISTS = frozenset({"spark.jars", "spark.plugins", "spark.sql.extensions"})


def recommended_conf() -> dict[str, str]:
    """Return the settings of the whole application that make Python tasks fast.

    >>> recommended_conf()
    {'spark.python.unix.domain.socket.enabled': 'true'}
    """
    return dict(conf.FAST)


def configure(builder: Builder, *, plugin: bool = True) -> Builder:
    """Set the recommended conf on a `SparkSession.builder`, wherever the user has not.

    With `plugin` the jar's listener and lease keeper come along; without it everything still
    works, but nobody records attempts or keeps a lease.

    >>> from pyspark.sql import SparkSession
    >>> builder = SparkSession.Builder().config("spark.python.unix.domain.socket.enabled", "false")
    >>> configure(builder)._options["spark.python.unix.domain.socket.enabled"]
    'false'
    """
    target: Any = builder
    file = conf.defaults_file()
    defaults = conf.read_properties(file) if file else {}
    taken = {**defaults, **_submitted(), **target._options}
    bridge = {**conf.BRIDGE, "spark.jars": conf.jar_path()} if plugin and _can_load_jar() else {}
    for name, value in {**bridge, **conf.fast(taken)}.items():
        there = taken.get(name, "")
        if name in _LISTS and value not in there.split(","):
            target.config(name, f"{there},{value}" if there else value)
        elif not there:
            target.config(name, value)
    for name, value in conf.REDACTION.items():
        if name not in taken:
            target.config(name, value)
        elif not conf.redacts_storage(taken[name]):
            target.config(name, f"{taken[name]}|{conf.STORAGE_NAMES}")
    return builder


def _can_load_jar() -> bool:
    """Whether the plugin can be had: for this Spark, and in a JVM that still loads jars."""
    if not pyspark.__version__.startswith(conf.SPARK):
        return False
    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        return os.path.isfile(conf.jar_path())
    SparkContext._ensure_initialized()
    jvm: Any = SparkContext._jvm
    try:
        jvm.org.apache.spark.util.Utils.classForName(conf.BRIDGE["spark.plugins"], False, False)
    except Exception:
        return False
    return True


def _submitted() -> dict[str, str]:
    """What spark-submit gave this driver; its JVM runs already."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def register(spark: Any) -> None:
    """Register the source in a session, with the session's `spark.ffq.*` settings as of now.

    Needed where the source is not found by itself (a `--py-files` zip), and for `spark.ffq.*` conf
    to count; call it again after changing such conf, and in each `newSession()` that should see it.
    A setting below `spark.ffq.` that nothing declares is refused with UnknownOption.
    """
    known = session_conf(spark)
    settings = {name: value for name, value in known.items() if name.startswith(CONF_PREFIX)}
    refuse_unknown_settings(settings)
    settings["spark.app.id"] = known.get("spark.app.id", "")
    kind = type("FfqShuffleSource", (FfqShuffleSource,), {"conf": settings})
    spark.dataSource.register(kind)
    jvm = getattr(spark, "_jvm", None)
    if jvm is not None:
        # Spark looks a sink up in the thread's active session, and a new thread has none.
        session = getattr(jvm, "org.apache.spark.sql.classic.SparkSession")
        session.setActiveSession(spark._jsparkSession)


def session_conf(spark: Any) -> dict[str, str]:
    """A session's settings, the application's included."""
    found = spark.conf.getAll
    return dict(found() if callable(found) else found)
