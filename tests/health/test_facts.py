"""Facts about executors and the plugin, derived from the settings of a session."""

from __future__ import annotations

import os

import pytest

from ffq_spark.conf import BRIDGE
from ffq_spark.health.facts import Facts

CORES = "spark.executor.cores"


@pytest.mark.parametrize(
    ("settings", "cores"),
    [
        ({"spark.master": "local"}, 1),
        ({"spark.master": "local[4]"}, 4),
        ({"spark.master": "local[3,2]"}, 3),
        ({"spark.master": "local[*]", CORES: "7"}, os.cpu_count()),
        ({"spark.master": "yarn"}, 1),
        ({"spark.master": "yarn", CORES: "8"}, 8),
        ({"spark.master": "yarn", CORES: "8", "spark.task.cpus": "3"}, 2),
        ({"spark.master": "yarn", CORES: "1", "spark.task.cpus": "2"}, 1),
    ],
)
def test_the_tasks_that_run_at_once_follow_from_master_and_cores(
    settings: dict[str, str], cores: int
) -> None:
    assert Facts(settings).cores == cores


def test_only_cluster_managers_with_containers_limit_the_memory_beside_the_heap() -> None:
    inside = {m: Facts({"spark.master": m}).in_containers for m in ("yarn", "k8s://h", "local[2]")}
    assert inside == {"yarn": True, "k8s://h": True, "local[2]": False}


@pytest.mark.parametrize(
    ("text", "size"), [("200", 200 << 20), ("1g", 1 << 30), (" 5M ", 5 << 20), ("", 7 << 20)]
)
def test_a_size_without_a_unit_has_the_unit_of_its_setting(text: str, size: int) -> None:
    settings = {"spark.executor.memory": text} if text else {}
    assert Facts(settings).bytes("spark.executor.memory", "7m") == size


@pytest.mark.parametrize(("spark", "works"), [("", True), ("4.3.0", True), ("4.2.1", False)])
def test_the_plugin_works_on_the_spark_that_it_is_built_for(spark: str, works: bool) -> None:
    settings = {"spark.plugins": f"org.other.Plugin,{BRIDGE['spark.plugins']}"}
    assert Facts(settings, spark).plugin_works is works
    assert not Facts({}, spark).plugin_works
