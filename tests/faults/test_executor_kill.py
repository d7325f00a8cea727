"""A write succeeds with all rows although a real executor is killed during it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fault_spark as fs
import pytest
from conftest import start_spark
from fault_executors import executors, kill, own_executor

pytestmark = pytest.mark.spark

ROWS = 120
TASKS = 6


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    session = start_spark("local-cluster[2,1,1024]")
    yield session
    session.stop()


def rows_of(cluster: Any, poisoned: fs.Hook) -> Any:
    rows = cluster.range(ROWS, numPartitions=TASKS).withColumnRenamed("id", "k")
    return rows.mapInArrow(fs.labelled(poisoned), fs.COLUMNS)


def test_an_executor_killed_with_parts_but_no_index_costs_and_adds_no_row(
    cluster: Any, root: str, tmp_path: Path
) -> None:
    """The executor dies after one poisoned file, without an index; another attempt takes over."""
    folder, app = str(tmp_path), cluster.sparkContext.applicationId

    def arrange(attempt: fs.Attempt) -> bool:
        return attempt.map_task == 3 and fs.comes_first(folder, "poisoned", attempt.id)

    def die(path: str) -> None:
        poisoned = Path(folder, "poisoned")
        if poisoned.exists() and f"/3/{poisoned.read_text()}/part" in path:
            kill(own_executor())
            fs.wait_for(lambda: False)

    fs.wait_for(lambda: len(executors(app)) == 2)
    before = executors(app)
    cluster.dataSource.register(fs.hooked_source(stored=die))
    fs.save(rows_of(cluster, arrange), root)

    registered = fs.check_rows(root, ROWS)
    assert len(registered) == TASKS
    assert len(before - executors(app)) == 1
    (dead,) = [a for a in fs.attempts(root, "stale") if not a.complete]
    assert (dead.map_task, dead.attempt) == (3, int(fs.left(folder, "poisoned")))
    assert {row["v"] for row in fs.stored_rows(root, 3, dead.attempt)} == {fs.POISON}


def test_an_executor_killed_from_outside_at_any_moment_costs_and_adds_no_row(
    cluster: Any, root: str
) -> None:
    app = cluster.sparkContext.applicationId
    fs.wait_for(lambda: len(executors(app)) == 2)

    def kill_one() -> int:
        fs.wait_for(lambda: any(Path(root).glob("shuffle/*/*/*/*/part*.ipc")))
        victim = min(executors(app))
        kill(victim)
        return victim

    cluster.dataSource.register(fs.hooked_source())
    with ThreadPoolExecutor(1) as killer:
        killed = killer.submit(kill_one)
        fs.save(rows_of(cluster, lambda _: False), root)
        assert killed.result() not in executors(app)
    assert len(fs.check_rows(root, ROWS)) == TASKS
