"""All checks together: every finding, and none for a healthy session."""

from __future__ import annotations

import pytest
from health_scene import flagged

from ffq_spark import conf
from ffq_spark.conf import SOCKETS
from ffq_spark.health.checks import check
from ffq_spark.health.facts import Facts

ARROW = "spark.sql.execution.arrow.maxBytesPerBatch"


def test_the_recommended_flags_leave_nothing_to_find() -> None:
    assert flagged() == flagged(running=True) == set()


def test_an_empty_session_lacks_all() -> None:
    lacking = {finding.setting for finding in check(Facts())}
    assert lacking == {*conf.FAST, *conf.BRIDGE, *conf.REDACTION}


@pytest.mark.parametrize(
    ("name", "value", "wrong"),
    [
        (ARROW, "64MB", False),
        (ARROW, "2147483647b", True),
        (ARROW, "nonsense", False),
        (SOCKETS, "false", True),
        (SOCKETS, "TRUE", False),
        ("spark.python.worker.reuse", "false", True),
        ("spark.python.worker.reuse", "true", False),
        ("spark.ffq.verify", "counts", False),
        ("spark.ffq.LAYOUT", "packed", False),
        ("spark.ffq.storage.key", "any", False),
        ("spark.ffq.cleanup.ttl", "1d", False),
        ("spark.ffq.partitions", "8", True),
        ("spark.ffq.serverCredits", "1g", True),
        ("spark.ffq.verfy", "counts", True),
        ("spark.speculation", "true", False),
    ],
)
def test_a_value_is_judged(name: str, value: str, wrong: bool) -> None:
    assert flagged(**{name: value}) == ({name} if wrong else set())
