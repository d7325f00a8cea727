"""Configure Spark sessions, and register the data source where Spark cannot discover it."""

from __future__ import annotations

import os
from typing import Any, TypeVar

import pyspark
from pyspark import SparkConf, SparkContext

from ffq_spark import conf
from ffq_spark.options import CONF_PREFIX, refuse_unknown_settings
from ffq_spark.spark.source import FfqShuffleSource

Builder = TypeVar("Builder")

# Settings that hold a list. Values are appended to the user's.
_LISTS = frozenset({"spark.jars", "spark.plugins", "spark.sql.extensions"})


def recommended_conf() -> dict[str, str]:
    """Return the application-wide settings that make Python tasks fast.

    >>> recommended_conf()
    {'spark.python.unix.domain.socket.enabled': 'true'}
    """
    return dict(conf.FAST)


def configure(builder: Builder, *, plugin: bool = True) -> Builder:
    """Set the recommended conf on a `SparkSession.builder` where the user has not set it.

    `plugin` adds the jar with the listener and the lease keeper. Without it reads and writes work,
    but no attempts are recorded and no lease is kept.

    >>> from pyspark.sql import SparkSession
    >>> builder = SparkSession.Builder().config("spark.python.unix.domain.socket.enabled", "false")
    >>> configure(builder)._options["spark.python.unix.domain.socket.enabled"]
    'false'
    """
    target: Any = builder
    file = conf.defaults_file()
    defaults = conf.read_properties(file) if file else {}
    user_conf = {**defaults, **_submitted(), **target._options}
    bridge = {**conf.BRIDGE, "spark.jars": conf.jar_path()} if plugin and _can_load_jar() else {}
    for name, value in {**bridge, **conf.fast(user_conf)}.items():
        current = user_conf.get(name, "")
        if name in _LISTS and value not in current.split(","):
            target.config(name, f"{current},{value}" if current else value)
        elif not current:
            target.config(name, value)
    for name, value in conf.REDACTION.items():
        if name not in user_conf:
            target.config(name, value)
        elif not conf.redacts_storage(user_conf[name]):
            target.config(name, f"{user_conf[name]}|{conf.STORAGE_NAMES}")
    return builder


def _can_load_jar() -> bool:
    """Return whether the plugin supports this Spark, and its JVM has or can still load the jar."""
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
    """Return the conf of a driver that spark-submit started, whose JVM is already running."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def register(spark: Any) -> None:
    """Register the source in a session, with the session's current `spark.ffq.*` settings.

    Call it where Spark does not discover the source (a `--py-files` zip), and to apply
    `spark.ffq.*` conf. Call it again after changing such conf, and in each `newSession()` that
    should see it. An unknown setting below `spark.ffq.` raises UnknownOption.
    """
    all_settings = session_conf(spark)
    settings = {n: value for n, value in all_settings.items() if n.startswith(CONF_PREFIX)}
    refuse_unknown_settings(settings)
    settings["spark.app.id"] = all_settings.get("spark.app.id", "")
    source = type("FfqShuffleSource", (FfqShuffleSource,), {"conf": settings})
    spark.dataSource.register(source)
    jvm = getattr(spark, "_jvm", None)
    if jvm is not None:
        # Spark looks up a sink in the thread's active session, and a new thread has none.
        session = getattr(jvm, "org.apache.spark.sql.classic.SparkSession")
        session.setActiveSession(spark._jsparkSession)


def session_conf(spark: Any) -> dict[str, str]:
    """Return a session's settings, including the application's."""
    settings = spark.conf.getAll
    return dict(settings() if callable(settings) else settings)
