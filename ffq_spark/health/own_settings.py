"""Checks of the session's `spark.ffq.*` settings."""

from __future__ import annotations

from collections.abc import Iterator

from ffq_spark.health.facts import Facts, Finding
from ffq_spark.options import CONF_PREFIX, call_only_settings, unknown_settings


def check_own_settings(facts: Facts) -> Iterator[Finding]:
    """Find `spark.ffq.*` settings that do not exist, or that only a call can set."""
    for name, near in unknown_settings(facts.settings).items():
        cost = "writes and `ffq_spark.register` fail with FFQ_UNKNOWN_OPTION"
        # The value is not shown: it may be a secret under a misspelt name.
        yield Finding(name, "", near, cost, f"use {near}" if near else f"remove {name}")
    for name in call_only_settings(facts.settings):
        cost = "the setting has no effect, because the option is read from each call"
        remedy = f"pass {name.removeprefix(CONF_PREFIX)} as an option of the call"
        yield Finding(name, facts.get(name), "", cost, remedy)
