"""The verbs about consumers, holds and pauses."""

from __future__ import annotations

import pytest
from command_line import as_json, run
from conftest import Place
from gc_scene import Scene

from ffq_spark.exchange.ledger.consumers import record_progress


@pytest.fixture
def scene(root: str) -> Scene:
    scene = Scene(Place(root))
    for _ in range(3):
        scene.write()
    return scene


def test_consumers_and_holds_are_listed_and_let_go(scene: Scene) -> None:
    root = scene.place.root
    record_progress(scene.store, "dashboard", 2)
    assert as_json("hold", root, "1", "audit") == {"hold": "audit", "step": 1}
    listed = as_json("consumers", root)
    assert [(row["kind"], row["name"], row["step"]) for row in listed] == [
        ("consumer", "dashboard", 2),
        ("hold", "audit", 1),
    ]
    assert "dashboard" in run("consumers", root).stdout
    as_json("forget", root, "dashboard")
    as_json("release", root, "audit")
    assert as_json("consumers", root) == []


def test_a_hold_of_a_step_that_is_not_there(scene: Scene) -> None:
    done = run("hold", scene.place.root, "9", "x")
    assert done.returncode == 2 and "FFQ_STEP_NOT_FOUND" in done.stderr


def test_pause_and_resume(scene: Scene) -> None:
    root = scene.place.root
    assert as_json("pause", root) == {"paused_at": 3}
    assert as_json("resume", root) == {"paused_at": None}
    assert as_json("pause", root, "--at", "7") == {"paused_at": 7}
    assert scene.exchange.paused_at() == 7
