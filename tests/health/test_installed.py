"""Checks of the installation: versions, storage clients, free space on disk."""

from __future__ import annotations

from health_scene import flagged

from ffq_spark.health.facts import Facts
from ffq_spark.health.installed import check_disk_space, check_packages, check_storage


def test_versions_are_compared() -> None:
    assert flagged(java="11.0.2") == {"Java"} and flagged(java="21") == set()
    good = {"pyspark": "4.3.0", "pyarrow": "18.0.0", "pandas": "2.2.3"}
    assert list(check_packages(good)) == list(check_packages({**good, "pandas": ""})) == []
    assert [f.setting for f in check_packages({**good, "pandas": "3.0.1"})] == ["pandas"]
    assert [f.setting for f in check_packages({"pyarrow": "9.0"})] == ["pyspark", "pyarrow"]


def test_spilling_needs_room_for_one_buffer_each() -> None:
    facts = Facts({"spark.master": "local[2]"})
    assert list(check_disk_space(facts, "/tmp", 512 << 20)) == []
    assert [f.setting for f in check_disk_space(facts, "/tmp", (512 << 20) - 1)] == ["/tmp"]


def test_a_storage_without_a_client_is_found() -> None:
    assert list(check_storage("s3://bucket/x")) == list(check_storage("/data/x")) == []
    assert [f.setting for f in check_storage("nosuch://bucket/x")] == ["storage"]
