"""All checks that need only the settings and versions of a session."""

from __future__ import annotations

from collections.abc import Iterator

from ffq_spark.health.facts import Facts, Finding
from ffq_spark.health.installed import check_java
from ffq_spark.health.own_settings import check_own_settings
from ffq_spark.health.tasks import check_batches, check_memory, check_workers
from ffq_spark.health.tuning import check_plugin, check_redaction, check_tuning

_CHECKS = (
    check_tuning,
    check_plugin,
    check_redaction,
    check_own_settings,
    check_java,
    check_workers,
    check_batches,
    check_memory,
)


def check(facts: Facts) -> Iterator[Finding]:
    """Yield the findings about a session's settings and versions.

    >>> settings = {"spark.plugins": "io.ffq.spark.FfqPlugin", "spark.python.worker.reuse": "false"}
    >>> [finding.setting for finding in check(Facts(settings)) if "worker" in finding.setting]
    ['spark.python.worker.reuse']
    """
    for run_check in _CHECKS:
        yield from run_check(facts)
