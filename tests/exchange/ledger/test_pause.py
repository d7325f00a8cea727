"""Pauses: streams of any speed rest at one step, also while the step is being decided."""

from __future__ import annotations

import pytest
from conftest import Place
from gc_scene import Scene

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


def test_a_damaged_step_of_a_pause_is_an_error_that_names_its_file(scene: Scene) -> None:
    write(scene, 1)
    pause.pause(scene.store)
    scene.store.write(paths.PAUSE_STEP, [b"{"])
    with pytest.raises(CorruptRecord) as caught:
        pause.resting_place(scene.store, 0, 1)
    assert caught.value.path == scene.store.url(paths.PAUSE_STEP)
