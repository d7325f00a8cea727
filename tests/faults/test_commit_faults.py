"""Each storage call of a write fails in turn; the error must agree with the rows readers see."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Place
from fault_rows import OPTIONS, Rows, batch_of, rows_of, store_at, visible, write
from fault_storage import Fault, failing

from ffq_spark.errors import FfqError
from ffq_spark.errors import Rows as Claim
from ffq_spark.exchange.ledger import ledger
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.maintenance.gc import collect_garbage
from ffq_spark.exchange.maintenance.versions import rollback
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.exchange.write.shared_write import SharedWrite
from ffq_spark.format.ids import now_ms
from ffq_spark.store import Store

BEFORE, NEW = 1, 2
BATCH = replace(OPTIONS, stream_id="nightly", batch=0)

Work = Callable[[Place, Store], Any]


@dataclass(frozen=True)
class Scene:
    """A write, its preparation, and the rows that readers see without and with the write."""

    work: Work
    without: Rows | None
    with_it: Rows
    prepare: Callable[[Place], Any] = lambda place: write(place, BEFORE)
    again: Work | None = None
    shared: bool = False
    """Whether an earlier call of the same commit may have come through."""


def plain(mode: str = "append") -> Work:
    return lambda place, store: write(place, NEW, mode, store)


def stream(place: Place, store: Store) -> Any:
    return write_batches(place.root, [batch_of(NEW)], options=BATCH, store=store)


def taking_over(place: Place, store: Store) -> Any:
    options = replace(BATCH, stream_run="new", takeover=True)
    return write_batches(place.root, [batch_of(NEW)], options=options, store=store)


def first_batch(place: Place) -> None:
    """Write the first batch of another owner."""
    options = replace(BATCH, stream_run="old")
    write_batches(place.root, [batch_of(BEFORE)], options=options, store=store_at(place))


def two_steps(place: Place) -> None:
    write(place, BEFORE)
    write(place, NEW)


def upload(place: Place) -> None:
    """Begin a shared write and put its map output; `commit_upload` finds the query on storage."""
    write(place, BEFORE)
    rows = batch_of(NEW)
    given = {"keys": "k", "partitions": "3"}
    SharedWrite.begin(store_at(place), rows.schema, given, lease_seconds=300).put(0, [rows])


def commit_upload(place: Place, store: Store) -> Any:
    (query,) = (
        int(entry.name.split(".")[0])
        for entry in store_at(place).list("_ffq/queries")
        if entry.name.endswith(".job.json")
    )
    return SharedWrite.open(store, query).commit(map_tasks=1)


BOTH = rows_of([BEFORE, NEW])
SCENES = {
    "first": Scene(plain(), None, rows_of([NEW]), prepare=lambda place: None),
    "append": Scene(plain(), rows_of([BEFORE]), BOTH),
    "replace": Scene(plain("replace"), rows_of([BEFORE]), rows_of([NEW])),
    "stream": Scene(stream, rows_of([BEFORE]), BOTH),
    "takeover": Scene(taking_over, rows_of([BEFORE]), BOTH, prepare=first_batch),
    "rollback": Scene(
        lambda place, store: rollback(store, 1), BOTH, rows_of([BEFORE]), prepare=two_steps
    ),
    "upload": Scene(
        commit_upload, rows_of([BEFORE]), BOTH, prepare=upload, again=plain(), shared=True
    ),
}
# Faults refuse the call or lose its answer, once or for good.
MODES = list(itertools.product((False, True), repeat=2))
WAYS = ["refused once", "refused for good", "lost once", "lost, then down"]


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "WAITS", (0.0, 0.0))


def run(scene: Scene, place: Place, fault: Fault) -> Claim | None:
    """Run a write with a fault; return what its error says about the rows, None for success."""
    scene.prepare(place)
    try:
        scene.work(place, failing(place, fault))
    except FfqError as error:
        return error.rows
    return None


def check(scene: Scene, place: Place, fault: Fault, claim: Claim | None) -> None:
    """Compare a claim with the rows that readers see now, after gc, and after a second run."""
    about = f"{fault} ({fault.subject}): {claim}"
    seen = visible(place)
    if claim is Claim.UNKNOWN:
        assert fault.for_good and seen in (scene.without, scene.with_it), about
        decides = any(part in fault.subject for part in ("outcome", "exchange.json", "streams/"))
        assert decides or scene.shared, about
        return
    expected = scene.without if claim is Claim.NEVER else scene.with_it
    assert seen == expected, about
    # A later reader, or gc after the end of the lease, must not change the result.
    collect_garbage(store_at(place), ttl_ms=0, now=now_ms() + 48 * 3600 * 1000)
    Ledger(store_at(place)).roll_forward()
    assert visible(place) == expected, f"after a cleanup: {about}"
    if claim is Claim.NEVER:
        (scene.again or scene.work)(place, store_at(place))
        assert visible(place) == scene.with_it, f"after a second run: {about}"


def campaign(
    scene: Scene, places: Iterator[Place], mode: tuple[bool, bool], step: int = 1
) -> list[Claim | None]:
    """Fail each call, or every `step`-th call from a first one that depends on the mode."""
    claims = []
    for call in itertools.count(1 + MODES.index(mode) % step, step):
        place, fault = next(places), Fault(call, *mode)
        claim = run(scene, place, fault)
        if not fault.met:
            assert claim is None
            return claims
        check(scene, place, fault, claim)
        claims.append(claim)
    raise AssertionError


@pytest.mark.parametrize("mode", MODES, ids=WAYS)
@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_the_error_tells_what_readers_see(
    scene: Scene, mode: tuple[bool, bool], tmp_path: Path
) -> None:
    places = (Place(str(tmp_path / str(number))) for number in itertools.count())
    claims = campaign(scene, places, mode)
    assert Claim.NEVER in claims
    # One failure after the outcome delays a commit but does not fail it.
    assert None in claims
    _, for_good = mode
    assert (Claim.PENDING in claims) == for_good


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("mode", MODES, ids=WAYS)
@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_the_error_tells_what_readers_of_s3_see(
    s3: Any, scene: Scene, mode: tuple[bool, bool], step: int
) -> None:
    places = (
        Place(f"s3://{s3.bucket}/{uuid.uuid4().hex}", s3.storage_options) for _ in itertools.count()
    )
    campaign(scene, places, mode, step)


def test_a_writer_without_the_right_to_delete_commits_steps(place: Place) -> None:
    fault = Fault(1, for_good=True, only="delete")
    store = failing(place, fault)
    for number in (1, 2, 3):
        assert write(place, number, store=store).step == number
    assert fault.met
    assert visible(place) == rows_of([1, 2, 3])


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_no_write_needs_the_right_to_delete(scene: Scene, root: str) -> None:
    place, fault = Place(root), Fault(1, for_good=True, only="delete")
    assert run(scene, place, fault) is None
    assert fault.met
    assert visible(place) == scene.with_it
