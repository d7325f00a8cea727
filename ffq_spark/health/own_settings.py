"""Checks of the session's `spark.ffq.*` settings."""

from __future__ import annotations

from collections.abc import Iterator

from ffq_spark.health.facts import Facts, Finding
from ffq_spark.options import CONF_PREFIX, call_only_settings, unknown_settings


def check_own_settings(facts: Facts) -> Iterator[Finding]:
    """Find settings below `spark.ffq.` that nothing declares, or that no session can give."""
    for name, near in unknown_settings(facts.settings).items():
        cost = "writes and `ffq_spark.register` fail with FFQ_UNKNOWN_OPTION"
        # The value may be a secret whose setting is misspelt.
        yield Finding(name, "", near, cost, f"use {near}" if near else "leave it out")
    for name in call_only_settings(facts.settings):
        cost = "it has no effect: the option is taken from the call"
        remedy = f"give {name.removeprefix(CONF_PREFIX)} in the call"
        yield Finding(name, facts.get(name), "", cost, remedy)
