"""Tasks that fail after they have written everything, and stages that run twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fault_spark as fs
import pytest
from conftest import start_spark
from fault_executors import executors, kill, own_executor

from ffq_spark import Exchange
from ffq_spark.errors import NotRegistered

pytestmark = pytest.mark.spark

ROWS = 120


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    conf = {"spark_task_maxFailures": "4", "spark_sql_adaptive_enabled": "false"}
    session = start_spark("local-cluster[2,1,1024]", **conf)
    yield session
    session.stop()


def test_an_attempt_that_fails_after_its_last_file_leaves_no_row(
    cluster: Any, root: str, tmp_path: Path
) -> None:
    """Three map tasks fail once, twice and three times, each time complete and poisoned."""

    def fails(attempt: fs.Attempt) -> bool:
        return attempt.number <= attempt.map_task

    def fail(attempt: fs.Attempt) -> None:
        if fails(attempt):
            raise RuntimeError("killed after the index")

    cluster.dataSource.register(fs.hooked_source(fail))
    rows = cluster.range(ROWS, numPartitions=3).withColumnRenamed("id", "k")
    fs.save(rows.mapInArrow(fs.labelled(fails), fs.COLUMNS), root)

    registered = fs.check_rows(root, ROWS)
    stale = fs.attempts(root, "stale")
    assert sorted(a.map_task for a in stale) == [0, 1, 1, 2, 2, 2]
    for attempt in stale:
        assert attempt.complete
        assert attempt.attempt < registered[attempt.map_task]
        written = fs.stored_rows(root, attempt.map_task, attempt.attempt)
        assert len(written) == ROWS // 3
        assert {row["v"] for row in written} == {fs.POISON}
        with pytest.raises(NotRegistered):
            Exchange(root).read(query=attempt.query, attempt=attempt.attempt)


def test_a_write_whose_task_fails_for_good_shows_nothing(cluster: Any, root: str) -> None:
    def fail(attempt: fs.Attempt) -> None:
        if attempt.map_task == 1:
            raise RuntimeError("killed after the index")

    rows = cluster.range(ROWS, numPartitions=2).withColumnRenamed("id", "k")
    good = rows.mapInArrow(fs.labelled(lambda _: False), fs.COLUMNS)
    bad = rows.mapInArrow(fs.labelled(lambda _: True), fs.COLUMNS)
    cluster.dataSource.register(fs.hooked_source(lambda _: None))
    fs.save(good, root)
    cluster.dataSource.register(fs.hooked_source(fail))
    for mode in ("append", "overwrite"):
        with pytest.raises(Exception, match="killed after the index"):
            fs.save(bad, root, mode)
    fs.check_rows(root, ROWS)
    assert len(fs.attempts(root, "stale")) >= 2 * 5


@pytest.mark.parametrize("winner", ["first", "second"])
def test_after_a_stage_retry_one_of_two_attempts_with_the_same_number_counts(
    cluster: Any, root: str, tmp_path: Path, winner: str
) -> None:
    """Both twins of map task 0 are complete and have attempt number 0, in two stage attempts.

    The first twin has read its input and waits. The executor of the other tasks is killed with its
    shuffle files, so Spark retries the stage, including map task 0, while the first twin runs.
    """
    folder = str(tmp_path)
    app = cluster.sparkContext.applicationId

    def arrange(attempt: fs.Attempt) -> bool:
        """Arrange the order of the twins; runs in each task after it has read its input."""
        if attempt.map_task == 1 and fs.comes_first(folder, "killed"):
            fs.left(folder, "first")
            kill(own_executor())
        if attempt.map_task == 0 and not fs.comes_first(folder, "first", attempt.id):
            fs.comes_first(folder, "second", attempt.id)
        elif attempt.map_task == 0:
            fs.left(folder, "second")
        return False

    def hold(attempt: fs.Attempt) -> None:
        """Hold the loser back; runs in each task between its index and its commit."""
        if attempt.map_task == 0:
            fs.wait_for(lambda: len(fs.finished(root, 0)) == 2)
            if fs.left(folder, winner) != str(attempt.id):
                fs.wait_for(lambda: fs.has_ended(root))

    before = executors(app)
    cluster.dataSource.register(fs.hooked_source(hold))
    rows = cluster.range(ROWS, numPartitions=2).withColumnRenamed("id", "k")
    shuffled = rows.repartition(3, "k").mapInArrow(fs.labelled(arrange), fs.COLUMNS)
    fs.save(shuffled, root)

    registered = fs.check_rows(root, ROWS)
    assert executors(app) != before
    twins = {name: int(fs.left(folder, name)) for name in ("first", "second")}
    assert fs.finished(root, 0) == set(twins.values())
    assert registered[0] == twins.pop(winner)
    (loser,) = twins.values()
    for twin in (registered[0], loser):
        assert {row["number"] for row in fs.stored_rows(root, 0, twin)} == {0}
    assert loser in {a.attempt for a in fs.attempts(root, "stale") if a.map_task == 0}
