"""Checks of the settings that ffq_spark recommends: tuning, plugin, and redaction of secrets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ffq_spark import conf
from ffq_spark.conf import JAR, PLUGIN, SOCKET_DIR, SOCKETS, TUNED, Setting
from ffq_spark.health.facts import Facts, Finding

_HIDDEN = "(redacted)"
_FLAGS = "spark-submit $(ffq-spark conf), or ffq_spark.configure(builder)"


def check_tuning(facts: Facts) -> Iterator[Finding]:
    """Find tuned settings that are missing or different, and Unix sockets that cannot work."""
    trouble = conf.sockets_fail(facts.settings)
    for setting in TUNED:
        if setting.name == SOCKETS and trouble:
            yield from _sockets(facts, setting, trouble)
        elif not _is_set(facts, setting):
            now = facts.get(setting.name, setting.default)
            yield Finding(setting.name, now, setting.value, setting.cost, _how(setting))


def _is_set(facts: Facts, setting: Setting) -> bool:
    value = facts.settings.get(setting.name)
    if value is None:
        # The plugin sets a missing value when the session starts, unless the environment does.
        decided = setting.name == SOCKETS and "PYSPARK_UDS_MODE" in os.environ
        return facts.plugin_works and not facts.running and not decided
    return value.strip().lower() == setting.value


def _sockets(facts: Facts, setting: Setting, trouble: str) -> Iterator[Finding]:
    now = facts.get(SOCKETS, setting.default)
    if now.strip().lower() == "true":
        cost = f"every Python task fails: {trouble}"
        yield Finding(SOCKET_DIR, "", "/tmp", cost, f"--conf {SOCKET_DIR}=/tmp")
    elif "Windows" not in trouble:
        remedy = f"--conf {SOCKETS}=true --conf {SOCKET_DIR}=/tmp"
        yield Finding(SOCKETS, now, setting.value, f"{setting.cost}; {trouble}", remedy)


def _how(setting: Setting) -> str:
    return f"--conf {setting.name}={setting.value}"


def check_redaction(facts: Facts) -> Iterator[Finding]:
    """Find redaction patterns that miss storage options; Spark's own miss `storage.key`."""
    for name, wanted in conf.REDACTION.items():
        now = facts.get(name)
        # Spark's REST service redacts the value of a pattern that contains "secret".
        if _HIDDEN not in now and not conf.redacts_storage(now):
            cost = "plans and event logs show the storage options of jobs, including secrets"
            yield Finding(name, now or "Spark's own", wanted, cost, _FLAGS)


def check_plugin(facts: Facts) -> Iterator[Finding]:
    """Find a missing plugin, extension or jar, and a Spark that the plugin is not built for."""
    plugin, extension = PLUGIN
    if not facts.has_plugin:
        now = facts.get(plugin.name)
        yield Finding(plugin.name, now, plugin.value, plugin.cost, _FLAGS)
    if not facts.has_plugin and not facts.lists(extension.name):
        now = facts.get(extension.name)
        yield Finding(extension.name, now, extension.value, extension.cost, _FLAGS)
    if facts.has_plugin and not facts.plugin_works:
        cost = f"the plugin is off: {plugin.cost}; {extension.cost}"
        remedy = "use the Spark that the jar is built for"
        yield Finding("Spark", facts.spark, f"{conf.SPARK}x", cost, remedy)
    if facts.has_plugin and not facts.running:
        yield from _jar(facts)


def _jar(facts: Facts) -> Iterator[Finding]:
    listed = [*facts.get("spark.jars").split(","), *_class_path(facts)]
    ours = [name.strip() for name in listed if "ffq-spark" in os.path.basename(name)]
    remedy = f"--conf {JAR.name}=$(ffq-spark jar)"
    if not ours and not facts.get("spark.jars.packages"):
        yield Finding(JAR.name, facts.get(JAR.name), conf.jar_path(), JAR.cost, remedy)
    for name in ours:
        path = Path(name.removeprefix("file://").removeprefix("file:"))
        if "://" in name and not name.startswith("file:"):
            continue
        if not path.is_file():
            cost = f"the file does not exist: {JAR.cost}"
            yield Finding(JAR.name, name, conf.jar_path(), cost, remedy)
        elif path.read_bytes() != Path(conf.jar_path()).read_bytes():
            cost = "the plugin and the Python package have different versions"
            yield Finding(JAR.name, name, conf.jar_path(), cost, remedy)


def _class_path(facts: Facts) -> list[str]:
    entries = facts.get("spark.driver.extraClassPath").split(os.pathsep)
    home = os.environ.get("SPARK_HOME")
    return [*entries, *(map(str, Path(home, "jars").glob("ffq-spark*.jar")) if home else ())]
