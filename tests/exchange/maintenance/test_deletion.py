"""Deletion of very many attempts: bounded memory, crashes in between, foreign files."""

from __future__ import annotations

import shutil
import threading
import tracemalloc
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ffq_reference as ffq
import pyarrow as pa
import pytest
from conftest import Place
from gc_scene import DAY_MS, TTL_MS, Scene, rows_of

from ffq_spark.exchange.maintenance import deletion
from ffq_spark.exchange.maintenance.deletion import GcReport
from ffq_spark.exchange.maintenance.gc import collect_garbage
from ffq_spark.format import paths
from ffq_spark.format.ids import now_ms
from ffq_spark.store import Store, remote
from ffq_spark.store import s3 as s3_requests

SCHEMA = pa.schema([("k", pa.int64())])
LATER = 2_000_000_000_000


@pytest.fixture
def local(root: str) -> Scene:
    return Scene(Place(root))


def stale_step(scene: Scene, directories: int) -> int:
    """Write a step with one registered attempt and many stale attempts of 50 map tasks."""
    query = scene.begin()
    output = scene.attempt(query)
    for number in range(directories):
        for name in ("part-0.ipc", "index.json"):
            scene.store.write(f"shuffle/{query.query}/0/{number % 50}/{number + 2}/{name}", [b"x"])
    scene.commit(query, output)
    return query.query


def aborted_queries(scene: Scene, directories: int) -> None:
    for start in range(0, directories, 50):
        query = scene.ended().query
        for number in range(min(50, directories - start)):
            for name in ("part-0.ipc", "index.json"):
                scene.store.write(f"shuffle/{query}/0/{number}/7/{name}", [b"x"])


def unrecorded(scene: Scene, directories: int) -> None:
    rows = {0: [pa.record_batch([[1]], schema=SCHEMA)]}
    for number in range(directories):
        id = (7, 0, number % 2, number // 2 + 1)
        ffq.write_v1(Path(scene.place.root), id, rows, created_at_ms=1)


TREES: dict[str, Callable[[Scene, int], Any]] = {
    "step": stale_step,
    "queries": aborted_queries,
    "unrecorded": unrecorded,
}


def peak_of_a_gc_run(scene: Scene, **options: Any) -> tuple[int, GcReport]:
    tracemalloc.start()
    try:
        report = scene.gc(now_ms() + DAY_MS, **options)
        return tracemalloc.get_traced_memory()[1], report
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", TREES)
def test_ten_times_the_directories_take_no_more_memory(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion, "_PAGE_FILES", 50)
    peaks = []
    # The first run also includes one-time allocations of Python.
    for directories in (60, 60, 600):
        scene = Scene(Place(str(tmp_path / f"{len(peaks)}")))
        TREES[kind](scene, directories)
        dry, dry_report = peak_of_a_gc_run(scene, dry_run=True)
        real, report = peak_of_a_gc_run(scene)
        assert report.attempts == dry_report.attempts >= directories - 2
        assert report.problems == [] and report.files == dry_report.files
        peaks.append(max(dry, real))
    # The paths alone would take more memory.
    assert peaks[2] < peaks[1] + 540 * 2 * 50


def test_pages_of_an_object_store_hide_and_lose_nothing(
    s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (remote, s3_requests):
        monkeypatch.setattr(module, "BULK", 7)
    scene = Scene(Place(f"s3://{s3.bucket}/{uuid.uuid4().hex}", s3.storage_options))
    query = scene.begin()
    for number in range(30):
        scene.store.write(f"shuffle/{query.query}/0/{number}/9/part-0.ipc", [b"x"])
    outputs = [scene.attempt(query, 1, map_task) for map_task in (0, 15, 29)]
    step = scene.commit(query, *outputs)
    assert len(scene.store.list(f"shuffle/{query.query}/0")) == 30
    assert len(scene.data(query.query, 9)) == 30
    report = scene.gc(now_ms() + DAY_MS)
    assert (report.attempts, report.files, report.problems) == (30, 30, [])
    assert scene.rows() == rows_of(step)
    assert {path.split("/")[4] for path in scene.data()} == {"1"}


def test_very_many_problems_are_counted_and_only_the_first_are_kept() -> None:
    report = GcReport(dry_run=False)
    for number in range(1500):
        report.add_problem(str(number))
    assert (len(report.problems), report.problems[-1], report.more_problems) == (1000, "999", 500)


# --- crashes and foreign files ----------------------------------------------------------------


class Dead(BaseException):
    pass


@pytest.mark.parametrize("rule", ["ffq", "registered"])
def test_a_gc_run_without_records_that_dies_anywhere_is_finished_by_the_next(
    tmp_path: Path, rule: str
) -> None:
    for survived in range(100):
        root = tmp_path / str(survived)
        rows = {n: [pa.record_batch([[n]], schema=SCHEMA)] for n in range(2)}
        for attempt in (1, 2):
            ffq.write_v1(root, (7, 0, 0, attempt), rows, created_at_ms=1)

        class Mortal(Store):
            changes = survived

            def delete_many(self, paths: Any) -> None:
                for path in paths:
                    if self.changes == 0:
                        raise Dead
                    self.changes -= 1
                    super().delete_many([path])

        try:
            collect_garbage(Mortal(str(root)), ttl_ms=0, now=LATER, rule=rule)
        except Dead:
            # FFQ's rule skips an attempt without `index.json`, so that file must be deleted last.
            report = collect_garbage(Store(str(root)), ttl_ms=0, now=LATER, rule=rule)
            assert report.files == 4 - survived
        else:
            assert survived == 4
            return
        assert [path.name for path in (root / "shuffle/7/0/0").iterdir()] == ["2"]
    raise AssertionError("gc never came to its end")


def test_a_map_task_that_cannot_be_removed_stops_no_other(tmp_path: Path) -> None:
    rows = {0: [pa.record_batch([[1]], schema=SCHEMA)]}
    for map_task in range(3):
        for attempt in (1, 2):
            ffq.write_v1(tmp_path, (7, 0, map_task, attempt), rows, created_at_ms=1)

    class Failing(Store):
        def delete_many(self, paths: Any) -> None:
            if any(path.startswith("shuffle/7/0/1/") for path in paths):
                raise OSError("no")
            super().delete_many(paths)

    report = collect_garbage(Failing(str(tmp_path)), ttl_ms=0, now=LATER)
    (problem,) = report.problems
    assert "map task 1 of query 7" in problem and report.attempts == 2
    left = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.glob("shuffle/7/0/*/1"))
    assert left == ["shuffle/7/0/1/1"]


def test_a_tree_that_vanishes_under_a_walk_is_no_failure(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    stop = threading.Event()

    def come_and_go() -> None:
        while not stop.is_set():
            for number in range(10):
                store.write(f"d/{number}/0/x", [b"x"])
            for number in range(10):
                shutil.rmtree(tmp_path / "d" / str(number), ignore_errors=True)

    store.write("d/stable/x", [b"x"])
    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        for _ in range(500):
            assert ("d/stable/x", 1) in store.walk("d")
    finally:
        stop.set()
        thread.join()


def test_a_directory_that_is_a_link_is_left_alone_with_what_it_leads_to(
    local: Scene, tmp_path: Path
) -> None:
    query = stale_step(local, 1)
    stage = Path(local.place.root, f"shuffle/{query}/0")
    elsewhere = tmp_path / "elsewhere"
    shutil.move(stage / "0", elsewhere)
    (stage / "0").symlink_to(elsewhere)
    steps = local.exchange.steps()
    local.gc(now_ms() + DAY_MS)
    assert local.rows() == rows_of(*steps)
    assert (elsewhere / "2").exists()


def test_directories_without_files_go_with_their_parents(local: Scene) -> None:
    step, outcome = local.twins()
    aborted = local.ended()
    data = Path(local.place.root, "shuffle")
    for place in (f"{step.body.query}/0/0/9", f"{step.body.query}/0/7/1", f"{aborted.query}/1/0/1"):
        (data / place).mkdir(parents=True)
    local.gc(outcome.at_ms + DAY_MS)
    directories = {str(path.relative_to(data)) for path in data.rglob("*") if path.is_dir()}
    query = step.body.query
    assert directories == {f"{query}", f"{query}/0", f"{query}/0/0", f"{query}/0/0/1"}


def test_what_lies_inside_a_registered_attempt_is_part_of_it(local: Scene) -> None:
    step, outcome = local.twins()
    inner = f"shuffle/{step.body.query}/0/0/1/sub/notes"
    local.store.write(inner, [b"x"])
    local.store.write(f"shuffle/{step.body.query}/notes", [b"x"])
    local.gc(outcome.at_ms + TTL_MS)
    assert inner in local.data(step.body.query) and local.rows() == rows_of(step)
    assert f"shuffle/{step.body.query}/notes" not in local.data(step.body.query)


def test_a_committed_query_whose_first_record_is_lost_keeps_its_rows(local: Scene) -> None:
    step, _ = local.twins()
    local.store.delete(paths.query(step.body.query))
    local.gc(now_ms() + DAY_MS, ttl_ms=0)
    assert local.rows() == rows_of(step)
