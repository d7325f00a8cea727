"""Speculative twins: two live, complete attempts of one map task, one of them poisoned."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fault_spark as fs
import pytest
from conftest import start_spark
from sparkcluster import StandaloneCluster

pytestmark = pytest.mark.spark

ROWS = 120


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    conf = {
        "spark_speculation": "true",
        "spark_speculation_interval": "50ms",
        "spark_speculation_minTaskRuntime": "100ms",
        "spark_speculation_multiplier": "1.1",
        "spark_speculation_quantile": "0.3",
        "spark_executor_memory": "512m",
    }
    with StandaloneCluster() as standalone:
        session = start_spark(standalone.master, **conf)
        yield session
        session.stop()


@pytest.mark.parametrize("winner", ["first", "second"])
def test_of_two_speculative_twins_only_the_one_that_commits_is_seen(
    cluster: Any, root: str, tmp_path: Path, winner: str
) -> None:
    """The loser finishes last, but before the write ends, and leaves complete files."""
    folder = str(tmp_path)
    loser = "second" if winner == "first" else "first"

    def arrange(attempt: fs.Attempt) -> bool:
        """Poison the loser and let it wait for the winner; runs in each task before it writes."""
        if attempt.map_task != 0:
            return False
        mine = "first" if fs.comes_first(folder, "first", attempt.id) else "second"
        if mine == "second" and not fs.comes_first(folder, "second", attempt.id):
            raise RuntimeError("a third attempt")
        fs.left(folder, "second")
        if mine == loser:
            winning = int(fs.left(folder, winner))
            fs.wait_for(lambda: winning in fs.finished(root, 0))
        return mine == loser

    def hold(attempt: fs.Attempt) -> None:
        """Hold the loser back; runs in each task between its index and its commit."""
        if attempt.map_task == 0:
            fs.wait_for(lambda: len(fs.finished(root, 0)) == 2)
            if fs.left(folder, loser) == str(attempt.id):
                fs.wait_for(lambda: fs.has_ended(root))

    cluster.dataSource.register(fs.hooked_source(hold))
    rows = cluster.range(ROWS, numPartitions=4).withColumnRenamed("id", "k")
    fs.save(rows.mapInArrow(fs.labelled(arrange), fs.COLUMNS), root)

    registered = fs.check_rows(root, ROWS)
    assert registered[0] == int(fs.left(folder, winner))
    (stale,) = [a for a in fs.attempts(root, "stale") if a.map_task == 0]
    assert stale.complete
    assert stale.attempt == int(fs.left(folder, loser))
    written = fs.stored_rows(root, 0, stale.attempt)
    assert len(written) == ROWS // 4
    assert {row["v"] for row in written} == {fs.POISON}
