"""gc of a root with records: what it deletes, when, and what it always keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from conftest import Place
from gc_scene import DAY_MS, HOUR_MS, TTL_MS, Scene, rows_of

from ffq_spark.errors import BadOption, CorruptRecord, Fenced, FutureFormat
from ffq_spark.exchange.ledger import leases
from ffq_spark.format import paths
from ffq_spark.format.ids import new_query, now_ms
from ffq_spark.format.records import FormatRecord, Outcome
from ffq_spark.store import Store


@pytest.fixture
def scene(place: Place) -> Scene:
    return Scene(place)


@pytest.fixture
def local(root: str) -> Scene:
    return Scene(Place(root))


# --- finished queries -------------------------------------------------------------------------


def test_a_stale_attempt_goes_from_the_ttl_on_and_a_registered_one_never(scene: Scene) -> None:
    step, outcome = scene.twins()
    query = step.body.query
    everything = scene.everything()
    assert scene.gc(outcome.at_ms + TTL_MS - 1).attempts == 0
    assert scene.everything() == everything
    stale = scene.data(query, 2)
    names: list[str] = []
    report = scene.gc(outcome.at_ms + TTL_MS, on_removed=names.append)
    assert names == [f"shuffle/{query}/0/0/2"] and report.attempts == 1
    assert (report.files, report.bytes) == (
        len(stale),
        sum(size for path, size in everything if path in stale),
    )
    assert scene.data(query) == scene.data(query, 1) != set()
    scene.gc(outcome.at_ms + 1000 * DAY_MS, ttl_ms=0)
    assert scene.rows() == rows_of(step)


@pytest.mark.parametrize("outcome", [Outcome.ABORTED, Outcome.CANCELED])
def test_the_data_of_a_failed_query_goes_from_the_ttl_on(scene: Scene, outcome: Outcome) -> None:
    kept = scene.write()
    ended = scene.ended(outcome)
    scene.gc(ended.at_ms + TTL_MS - 1)
    assert scene.data(ended.query) != set()
    scene.gc(ended.at_ms + TTL_MS)
    assert scene.data() == scene.data(kept.body.query) != set()
    assert scene.outcome(ended.query) == ended


def test_a_commit_that_is_not_yet_published_is_kept_whole(scene: Scene) -> None:
    class Stopped(BaseException):
        pass

    class NeverPublished(Store):
        def create_once(self, path: str, data: bytes) -> bool:
            if path.startswith(paths.STEPS):
                raise Stopped
            return super().create_once(path, data)

    query = scene.begin()
    output = scene.attempt(query)
    dying = NeverPublished(scene.place.root, scene.place.storage_options)
    with pytest.raises(Stopped):
        Scene(scene.place, dying).commit(query, output)
    scene.gc(now_ms() + 2 * DAY_MS, ttl_ms=0)
    assert scene.rows() == rows_of(*scene.exchange.steps())
    assert [step.body.query for step in scene.exchange.steps()] == [query.query]


# --- running and lost queries -----------------------------------------------------------------


@pytest.mark.parametrize("lease_seconds", [0, 30])
def test_nothing_of_a_live_query_goes_even_with_ttl_0(scene: Scene, lease_seconds: int) -> None:
    query = scene.begin(lease_seconds=lease_seconds)
    output = scene.attempt(query)
    life = lease_seconds * 1000 or leases.UNLEASED_MS
    everything = scene.everything()
    report = scene.gc(query.created_at_ms + life - 1, ttl_ms=0)
    assert (report.attempts, report.fenced, report.problems) == (0, [], [])
    assert scene.everything() == everything
    step = scene.commit(query, output)
    assert scene.rows() == rows_of(step)


@pytest.mark.parametrize("lease_seconds", [0, 30])
def test_a_lost_query_is_fenced_and_all_its_bytes_go_and_nothing_else(
    scene: Scene, lease_seconds: int
) -> None:
    kept, _ = scene.twins()
    before = scene.everything()
    lost = scene.begin(lease_seconds=lease_seconds)
    output = scene.attempt(lost)
    end = lost.created_at_ms + (lease_seconds * 1000 or leases.UNLEASED_MS)
    assert scene.gc(end - 1, ttl_ms=10 * DAY_MS).fenced == []
    report = scene.gc(end, ttl_ms=10 * DAY_MS)
    assert report.fenced == [lost.query]
    assert scene.outcome(lost.query).outcome is Outcome.LOST
    gone = {path for path, _ in scene.everything() ^ before} - {
        paths.query(lost.query),
        paths.outcome(lost.query),
        paths.lease(lost.initiator),
    }
    assert gone == set()
    with pytest.raises(Fenced):
        scene.commit(lost, output)
    assert scene.rows() == rows_of(kept)
    assert [step.body.query for step in scene.exchange.steps()] == [kept.body.query]


def test_what_a_late_commit_and_a_zombie_leave_goes_the_next_time(scene: Scene) -> None:
    kept = scene.write()
    lost = scene.begin(lease_seconds=1)
    output = scene.attempt(lost)
    scene.gc(lost.created_at_ms + HOUR_MS)
    before = scene.everything()
    scene.attempt(lost, 2)
    with pytest.raises(Fenced):
        scene.commit(lost, output)
    assert scene.data(lost.query) != set()
    scene.exchange.info()
    scene.gc(lost.created_at_ms + HOUR_MS)
    assert scene.everything() == before
    assert scene.rows() == rows_of(kept)


def test_the_outcome_is_won_before_anything_is_deleted(root: str) -> None:
    class Watched(Store):
        done: list[tuple[str, str]] = []

        def create_once(self, path: str, data: bytes) -> bool:
            self.done.append(("create", path))
            return super().create_once(path, data)

        def delete_many(self, paths: Any) -> None:
            self.done.extend(("delete", path) for path in paths)
            super().delete_many(paths)

    scene = Scene(Place(root), Watched(root))
    lost = scene.begin()
    scene.attempt(lost)
    scene.gc(now_ms() + 2 * DAY_MS)
    verbs = [verb for verb, path in Watched.done if str(lost.query) in path][1:]
    assert verbs == ["create"] + ["delete"] * (len(verbs) - 1) and len(verbs) > 1


# --- data without a query's record ------------------------------------------------------------


def test_data_without_a_query_record_goes_past_the_ttl_if_its_number_is_ours(scene: Scene) -> None:
    kept = scene.write()
    orphan, foreign = new_query(), 7
    for query in (orphan, foreign):
        scene.store.write(f"shuffle/{query}/0/0/1/part-0.ipc", [b"rows"])
    made = orphan >> 21
    scene.gc(made + TTL_MS - 1)
    assert scene.data(orphan) != set()
    names: list[str] = []
    report = scene.gc(made + TTL_MS, on_removed=names.append)
    assert scene.data(orphan) == set() and scene.data(foreign) != set()
    assert names == [f"shuffle/{orphan}/0/0/1"] and report.attempts == 1
    (problem,) = report.problems
    assert f"query {foreign}" in problem
    assert scene.rows() == rows_of(kept)


# --- the report -------------------------------------------------------------------------------


def test_a_dry_run_removes_nothing_and_reports_the_same(scene: Scene) -> None:
    scene.twins()
    scene.ended()
    lost = scene.begin(lease_seconds=1)
    scene.attempt(lost)
    scene.store.write(f"shuffle/{new_query()}/0/0/1/part-0.ipc", [b"rows"])
    for _ in range(3):
        scene.write("replace")
    everything = scene.everything()
    later = now_ms() + DAY_MS
    dry = scene.gc(later, retention_ms=0, dry_run=True)
    assert scene.everything() == everything and scene.ledger.outcome(lost.query) is None
    real = scene.gc(later, retention_ms=0)
    assert dry.dry_run and vars(real) | {"dry_run": True} == vars(dry)
    assert real.fenced and real.expired and real.attempts >= 4 and real.leftovers
    gone = everything - scene.everything()
    assert len(gone) == real.files + real.leftovers
    assert sum(size for path, size in gone if paths.LEASES not in path) == real.bytes


DAMAGE: dict[str, Callable[[Scene, int], str]] = {
    "query": lambda scene, query: paths.query(query),
    "outcome": lambda scene, query: paths.outcome(query),
    "lease": lambda scene, query: paths.lease(f"app-{query}"),
    "step": lambda scene, query: paths.step(1),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_one_corrupt_record_is_reported_and_skipped_and_stops_nothing(
    local: Scene, kind: str
) -> None:
    local.write()
    damaged = local.begin(lease_seconds=1)
    local.attempt(damaged)
    if kind == "outcome":
        local.ledger.end(damaged.query, Outcome.ABORTED, "")
    others = [local.ended(), local.ended()]
    local.store.write(DAMAGE[kind](local, damaged.query), [b"{"])
    report = local.gc(now_ms() + DAY_MS, retention_ms=0)
    assert report.problems
    for problem in report.problems:
        assert "FFQ_CORRUPT_RECORD" in problem and DAMAGE[kind](local, damaged.query) in problem
    assert [local.data(other.query) for other in others] == [set(), set()]
    if kind != "step":
        assert local.data(damaged.query) != set()


def test_a_check_names_what_it_cannot_read_and_goes_on(local: Scene) -> None:
    aborted, damaged = local.ended(), local.ended()
    local.store.write(paths.outcome(damaged.query), [b"{"])
    reasons = local.exchange.check()
    assert reasons[aborted.query] == "ABORTED" and "FFQ_CORRUPT_RECORD" in reasons[damaged.query]


# --- roots that must not be touched -----------------------------------------------------------


def test_the_rule_of_ffq_is_refused_where_a_step_registers_attempts(local: Scene) -> None:
    step, _ = local.twins()
    with pytest.raises(BadOption, match="records"):
        local.gc(now_ms() + DAY_MS, rule="ffq")
    assert local.rows() == rows_of(step)


def test_gc_refuses_a_newer_format(local: Scene) -> None:
    local.ended()
    future = FormatRecord("link", min_writer=99)
    local.store.write(paths.FORMAT, [future.encode()])
    everything = local.everything()
    with pytest.raises(FutureFormat):
        local.gc(now_ms() + DAY_MS)
    assert local.everything() == everything


def test_a_root_that_lost_the_record_of_its_format_is_not_taken_for_one_of_ffq(
    local: Scene,
) -> None:
    local.twins()
    local.store.delete(paths.FORMAT)
    everything = local.everything()
    with pytest.raises(CorruptRecord, match="format"):
        local.gc(now_ms() + DAY_MS)
    assert local.everything() == everything


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_a_ttl_that_is_no_time_is_refused(local: Scene, seconds: float) -> None:
    with pytest.raises(BadOption, match="ttl"):
        local.exchange.gc(seconds)
    with pytest.raises(BadOption, match="retention"):
        local.exchange.gc(retention=seconds)
