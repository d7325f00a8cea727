"""Pauses: streams of any speed rest at one step, also while the step is being decided."""

from __future__ import annotations

from contextlib import suppress

import pytest
from conftest import Place
from gc_scene import Scene
from stepping import Files, interleaved, kill_points, open_store

from ffq_spark.errors import CorruptRecord, StepNotFound
from ffq_spark.exchange.ledger import pause
from ffq_spark.format import paths
from ffq_spark.store import Store


@pytest.fixture
def scene(root: str) -> Scene:
    return Scene(Place(root))


def write(scene: Scene, steps: int) -> None:
    for _ in range(steps):
        scene.write()


def test_streams_of_any_speed_rest_at_one_step(scene: Scene) -> None:
    write(scene, 3)
    assert pause.resting_place(scene.store, 1, 3) == 3
    assert scene.exchange.pause() == 3
    write(scene, 2)
    assert [pause.resting_place(scene.store, start, 5) for start in (0, 2, 3)] == [3, 3, 3]
    assert scene.exchange.pause() == scene.exchange.paused_at() == 3
    scene.exchange.resume()
    assert scene.exchange.paused_at() is None
    assert pause.resting_place(scene.store, 3, 5) == 5
    assert scene.exchange.pause(at=7) == 7
    assert pause.resting_place(scene.store, 3, 5) == 5
    write(scene, 4)
    assert pause.resting_place(scene.store, 5, 9) == 7
    scene.exchange.resume()
    with pytest.raises(StepNotFound):
        scene.exchange.pause(at=2)
    assert scene.exchange.paused_at() is None


def test_no_stream_passes_the_step_while_it_is_decided(scene: Scene) -> None:
    """Steps are added and streams read during a pause; no stream goes beyond the pause's step."""
    write(scene, 2)
    positions: list[int] = []

    def move(start: int) -> None:
        latest = scene.ledger.log.last_number()
        positions.append(pause.resting_place(scene.store, start, latest))

    class Busy(Store):
        def create_once(self, path: str, data: bytes) -> bool:
            write(scene, 1)
            move(0)
            created = super().create_once(path, data)
            move(1)
            write(scene, 1)
            return created

        def read_optional(self, path: str) -> bytes | None:
            move(2)
            return super().read_optional(path)

    step = pause.pause(Busy(scene.place.root))
    move(0)
    assert max(positions) <= step == scene.exchange.paused_at()
    assert positions[-1] == step


def test_a_stream_stands_still_while_the_step_is_undecided(scene: Scene) -> None:
    """A process that died in `pause` left its first record: every stream stays where it is."""
    write(scene, 3)
    scene.store.create_once(paths.PAUSE, b"{}\n")
    assert pause.paused_at(scene.store) == 0
    assert [pause.resting_place(scene.store, start, 3) for start in (0, 2, 3)] == [0, 2, 3]
    assert pause.pause(scene.store) == 3
    assert [pause.resting_place(scene.store, start, 5) for start in (0, 2, 3)] == [3, 3, 3]


def test_a_refused_pause_leaves_an_earlier_one_in_force(scene: Scene) -> None:
    write(scene, 3)
    assert pause.pause(scene.store, at=5) == 5
    with pytest.raises(StepNotFound, match="step 2 is before the newest step 3: give 3 or"):
        pause.pause(scene.store, at=2)
    assert pause.paused_at(scene.store) == 5


def test_an_exchange_without_steps_can_only_be_paused_at_a_future_one(scene: Scene) -> None:
    with pytest.raises(StepNotFound, match="no step yet: give step 1 or a later step"):
        pause.pause(scene.store)
    assert pause.paused_at(scene.store) is None
    assert pause.pause(scene.store, at=1) == 1


def test_a_damaged_record_of_a_pause_is_an_error_that_names_its_file(scene: Scene) -> None:
    write(scene, 1)
    pause.pause(scene.store)
    (step,) = (e.name for e in scene.store.list(paths.PAUSES) if e.name.startswith("step-"))
    for path in (f"{paths.PAUSES}/{step}", paths.PAUSE):
        for damage in (b"{", b'{"nonce": "../../x"}'):
            scene.store.write(path, [damage])
            with pytest.raises(CorruptRecord) as caught:
                pause.resting_place(scene.store, 0, 1)
            assert caught.value.path == scene.store.url(path)
    pause.resume(scene.store)
    assert pause.paused_at(scene.store) is None


# --- races and crashes ---------------------------------------------------------------------------


@pytest.fixture
def files() -> Files:
    """Return the files of an exchange with two steps."""
    files: Files = {}
    write(Scene(Place("/memory"), open_store(files)), 2)
    return files


def check_next(files: Files) -> None:
    """Check that a pause that comes after two more steps begins with the newest step."""
    store = open_store(files)
    write(Scene(Place("/memory"), store), 2)
    if pause.paused_at(store) is not None:
        pause.resume(store)
    assert pause.paused_at(store) is None
    assert pause.pause(store) == pause.paused_at(store) == 4


def test_a_pause_beside_a_resume_is_in_force_or_over(files: Files) -> None:
    pause.pause(open_store(files), at=9)
    seen: list[int | None] = []
    steps: list[int] = []
    for copy, process in interleaved(
        files, pause.resume, lambda store: steps.append(pause.pause(store))
    ):
        assert process.error is None
        step = pause.paused_at(open_store(copy))
        seen.append(step)
        assert step in (None, steps[-1]) and steps[-1] in (2, 9)
        check_next(copy)
    # Once the pause is over, a resume that has not ended leaves the next pause alone.
    assert seen == [None, None, 2, 2]


@pytest.mark.parametrize("asked", [False, True], ids=["first", "again"])
def test_a_resume_beside_a_pause_leaves_it_in_force_or_over(files: Files, asked: bool) -> None:
    if asked:
        pause.pause(open_store(files), at=9)
    for copy, process in interleaved(files, pause.pause, pause.resume):
        assert process.error is None and process.result in (2, 9)
        assert pause.paused_at(open_store(copy)) in (None, process.result)
        check_next(copy)


def test_pauses_at_once_decide_one_step(files: Files) -> None:
    steps: list[int] = []

    def write_and_pause(store: Store) -> None:
        write(Scene(Place("/memory"), store), 1)
        steps.append(pause.pause(store))

    for copy, process in interleaved(files, pause.pause, write_and_pause):
        assert process.error is None
        assert process.result == steps[-1] == pause.paused_at(open_store(copy))
    assert set(steps) == {2, 3}


def test_a_refused_pause_ends_no_pause_of_another_process(files: Files) -> None:
    def refused(store: Store) -> None:
        with suppress(StepNotFound):
            pause.pause(store, at=1)

    for first, second in ((refused, pause.pause), (pause.pause, refused)):
        for copy, process in interleaved(files, first, second):
            assert process.error is None
            assert pause.paused_at(open_store(copy)) == 2
            check_next(copy)


def test_a_resume_killed_anywhere_spoils_no_later_pause(files: Files) -> None:
    pause.pause(open_store(files))
    for copy in kill_points(files, pause.resume):
        assert pause.paused_at(open_store(copy)) in (None, 2)
        check_next(copy)


def test_a_step_that_another_pause_left_is_ignored(files: Files) -> None:
    """Earlier versions created records without a nonce."""
    old = b'{"step": 1, "at_ms": 0}'
    files[paths.pause_step("")] = old
    store = open_store(files)
    assert pause.paused_at(store) is None
    assert pause.pause(store) == pause.paused_at(store) == 2
    pause.resume(store)
    assert not [path for path in files if path.startswith("_ffq/pause/")]
    files |= {paths.PAUSE: b"{}\n", paths.pause_step(""): old}
    assert pause.pause(store) == pause.paused_at(store) == 1
    check_next(files)
