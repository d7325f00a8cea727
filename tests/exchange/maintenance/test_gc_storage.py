"""gc and storage: few requests, abandoned files, two concurrent runs."""

from __future__ import annotations

import os
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Place
from faults.fault_processes import at_once
from gc_scene import DAY_MS, HOUR_MS, Scene, rows_of
from s3_uploads import begin_upload, uploads_of

from ffq_spark.errors import StoreFailed
from ffq_spark.exchange.maintenance.deletion import GcReport
from ffq_spark.format.ids import now_ms
from ffq_spark.format.records import Outcome
from ffq_spark.store import Leftover, Store


@pytest.fixture
def s3_place(s3: Any) -> Place:
    return Place(f"s3://{s3.bucket}/{uuid.uuid4().hex}", s3.storage_options)


def watch(place: Place) -> Counter[str]:
    """Return a counter of the requests to S3 from now on."""
    seen: Counter[str] = Counter()
    client = place.client()
    client.connect()
    client.s3.meta.events.register(
        "before-call.s3",
        lambda model, **_: seen.update([model.name]),
        unique_id=f"watch-{id(seen)}",
    )
    return seen


# --- requests ---------------------------------------------------------------------------------


def test_2500_files_of_a_lost_query_go_in_3_requests(s3_place: Place) -> None:
    scene = Scene(s3_place)
    query = scene.begin()
    with scene.store.uploads() as uploads:
        for number in range(2500):
            uploads.write(f"shuffle/{query.query}/0/{number // 25}/1/part-{number}.ipc", [b"x"])
    seen = watch(s3_place)
    report = scene.gc(now_ms() + 2 * DAY_MS)
    assert report.files == 2500 and scene.data() == set()
    assert seen["DeleteObjects"] == 3
    # One more request may delete the marker of the fenced query.
    assert seen["DeleteObject"] <= 1


def test_the_stale_attempts_of_a_step_go_in_one_request(s3_place: Place) -> None:
    scene = Scene(s3_place)
    query = scene.begin()
    outputs = [scene.attempt(query, 1, map_task) for map_task in range(6)]
    for map_task in range(6):
        scene.attempt(query, 2, map_task)
    step = scene.commit(query, *outputs)
    seen = watch(s3_place)
    report = scene.gc(now_ms() + DAY_MS)
    assert report.attempts == 6
    assert (seen["DeleteObjects"], seen["DeleteObject"]) == (1, 0)
    assert scene.rows() == rows_of(step)


# --- abandoned files --------------------------------------------------------------------------


def test_temporary_files_go_when_they_are_old_and_no_others(root: str) -> None:
    scene = Scene(Place(root))
    step = scene.write()
    queries = Path(root, "_ffq/queries")
    mine = [queries / ".1.json.0a.tmp", queries / ".2.json.0b.tmp"]
    others = [queries / "notes.tmp", Path(root, ".mine.tmp"), queries / ".profile"]
    for path in (*mine, *others):
        path.write_text("half")
    later = now_ms() + DAY_MS
    os.utime(mine[1], (later / 1000, later / 1000))
    assert scene.gc(later + HOUR_MS // 2, ttl_ms=0, dry_run=True).leftovers == 1
    assert scene.gc(later + HOUR_MS // 2, ttl_ms=0).leftovers == 1
    assert [path.exists() for path in (*mine, *others)] == [False, True, True, True, True]
    assert scene.rows() == rows_of(step)


def test_unfinished_uploads_go_when_they_are_old_and_never_a_neighbours(s3_place: Place) -> None:
    scene = Scene(s3_place)
    step = scene.write()
    neighbour = Place(f"{s3_place.root}-2", s3_place.storage_options)
    for place in (s3_place, neighbour):
        for number in range(3):
            begin_upload(place, f"shuffle/7/0/0/1/part-{number}.ipc")
    begin_upload(s3_place, "somebody/elses.bin")
    assert scene.gc(now_ms(), ttl_ms=0).leftovers == 0
    later = now_ms() + HOUR_MS + 5000
    assert scene.gc(later, ttl_ms=2 * DAY_MS).leftovers == 0
    assert scene.gc(later, ttl_ms=0, dry_run=True).leftovers == 3
    assert len(uploads_of(s3_place)) == 4
    assert scene.gc(later, ttl_ms=0).leftovers == 3
    assert uploads_of(s3_place) == ["somebody/elses.bin"]
    assert len(uploads_of(neighbour)) == 3
    assert scene.gc(later, ttl_ms=0).leftovers == 0
    assert scene.rows() == rows_of(step)


def test_leftovers_that_may_not_be_listed_are_reported_and_stop_nothing(root: str) -> None:
    class Forbidden(Store):
        def leftovers(self, before_ms: int) -> Iterator[Leftover]:
            raise StoreFailed("cannot list: AccessDenied")

    scene = Scene(Place(root), Forbidden(root))
    ended = scene.ended()
    report = scene.gc(now_ms() + DAY_MS)
    (problem,) = report.problems
    assert "AccessDenied" in problem and scene.data(ended.query) == set()


# --- concurrent runs --------------------------------------------------------------------------


def fill(scene: Scene) -> set[tuple[str, int]]:
    """Make every kind of garbage; return the data files that gc must keep."""
    for _ in range(3):
        scene.write("replace")
    steps = [scene.twins()[0] for _ in range(3)]
    kept = scene.exchange.steps()[1:]
    for _ in range(3):
        scene.ended()
        scene.attempt(scene.begin(lease_seconds=1))
    registered = {
        (path, size)
        for step in kept
        for path, size in scene.everything()
        if path.startswith(f"shuffle/{step.body.query}/0/0/1/")
    }
    assert len(steps) == 3 and registered
    return registered


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_two_gc_runs_at_once_leave_what_one_leaves(
    kind: str, root: str, request: pytest.FixtureRequest
) -> None:
    place = Place(root) if kind == "local" else request.getfixturevalue("s3_place")
    scene = Scene(place)
    registered = fill(scene)
    later = now_ms() + DAY_MS

    def work(meet: Callable[[], None]) -> GcReport:
        own = Scene(place)
        own.exchange.info()
        meet()
        return own.gc(later, retention_ms=0)

    reports = at_once([work] * 2)
    assert [report.problems for report in reports] == [[], []]
    assert {item for item in scene.everything() if item[0].startswith("shuffle/")} == registered
    assert scene.rows() == rows_of(*scene.exchange.steps()[2:])
    after = scene.everything()
    again = scene.gc(later, retention_ms=0)
    assert (again.files, again.fenced, again.expired, again.leftovers) == (0, [], [], 0)
    assert scene.everything() == after


def test_a_file_that_vanishes_hides_no_other_from_a_listing(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.write("d/stable", [b"x"])
    stop = threading.Event()

    def come_and_go() -> None:
        while not stop.is_set():
            for number in range(20):
                store.write(f"d/{number}", [b"x"])
            for number in range(20):
                store.delete(f"d/{number}")

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        for _ in range(2000):
            assert "stable" in {entry.name for entry in store.list("d")}
    finally:
        stop.set()
        thread.join()


def test_an_upload_of_a_live_query_stays_however_long_it_takes(s3_place: Place) -> None:
    scene = Scene(s3_place)
    query = scene.begin()
    begin_upload(s3_place, f"shuffle/{query.query}/0/1/1/part-0.ipc")
    begin_upload(s3_place, f"_ffq/manifests/{query.query}.arrow")
    later = now_ms() + 2 * HOUR_MS
    assert scene.gc(later, ttl_ms=0).leftovers == 0
    scene.ledger.end(query.query, Outcome.ABORTED, "")
    assert scene.gc(later, ttl_ms=0).leftovers == 2
