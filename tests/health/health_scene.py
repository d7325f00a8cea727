"""The settings of a session without findings, and a function to check changed settings."""

from __future__ import annotations

from ffq_spark import conf
from ffq_spark.health.checks import check
from ffq_spark.health.facts import Facts

GOOD = {"spark.master": "local[2]", **conf.flags()}


def flagged(
    *, running: bool = False, spark: str = "4.3.0", java: str = "17.0.9", **own: str
) -> set[str]:
    """Return the settings with findings; `__` in a keyword stands for `.`, None unsets it."""
    settings = {**GOOD, **{name.replace("__", "."): value for name, value in own.items()}}
    known = {name: value for name, value in settings.items() if value is not None}
    return {finding.setting for finding in check(Facts(known, spark, java, running))}
