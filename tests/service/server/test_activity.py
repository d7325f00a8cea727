"""The live state of a server: what `Health` reports while calls come and go."""

from __future__ import annotations

from ffq_spark.options import ServeOptions
from ffq_spark.service.server.activity import Activity


def test_health_counts_calls_readers_and_writers() -> None:
    activity = Activity.start(ServeOptions(max_readers=2, max_writers=1))
    idle = {"calls": 0, "readers": 0, "waiting": 0, "writers": 0, "queries": None}
    assert activity.health() == {"status": "SERVING", **idle}
    with activity.calls.track(), activity.readers.slot(), activity.readers.slot():
        assert activity.health() == {"status": "SERVING", **idle, "calls": 1, "readers": 2}
        with activity.writers.slot():
            assert activity.health()["writers"] == 1
        activity.calls.drain(0)
        assert activity.health() == {"status": "DRAINING", **idle, "calls": 1, "readers": 2}
    assert activity.health() == {"status": "DRAINING", **idle}
