"""A speculative twin: the rows are right, and each attempt has the right state."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ffq_spark import Exchange

sys.path.insert(0, str(Path(__file__).parent))

from bridge_trouble import checked, eventually_lost, write
from conftest import start_spark
from sparkcluster import StandaloneCluster

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with StandaloneCluster() as started:
        session = start_spark(
            started.master,
            spark_executor_memory="700m",
            spark_speculation="true",
            spark_speculation_interval="100ms",
            spark_speculation_multiplier="1.5",
            spark_speculation_quantile="0.5",
            spark_speculation_minTaskRuntime="2s",
        )
        yield session
        session.stop()


def test_a_speculative_twin(cluster: Any, root: str, tmp_path: Path) -> None:
    def dawdle(_: str) -> None:
        time.sleep(120)

    write(cluster, root, dawdle, tmp_path / "marker")
    checked(root)
    assert not eventually_lost(root, "KILLED").task.speculative  # type: ignore[union-attr]
    (winner,) = [a for a in Exchange(root).attempts() if (a.map_task, a.state) == (1, "registered")]
    assert winner.task is not None and winner.task.speculative
