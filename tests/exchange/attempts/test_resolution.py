"""The attempt of a map task that counts, by records, by completeness, or by FFQ's rule."""

from __future__ import annotations

from pathlib import Path

import ffq_reference as ffq
import pyarrow as pa
import pytest
from conftest import Place
from gc_scene import Scene

from ffq_spark import Exchange
from ffq_spark.errors import BadOption, CorruptIndex, NoAttempts, NotRegistered, QueryNotFound
from ffq_spark.exchange.attempts import stored
from ffq_spark.exchange.attempts.resolution import Resolved, StageAttempts, complete_attempts
from ffq_spark.format.paths import AttemptId
from ffq_spark.store import Store

ROWS = {0: [pa.record_batch({"k": [1]})]}


@pytest.fixture
def scene(place: Place) -> Scene:
    return Scene(place)


@pytest.fixture
def ffq_root(tmp_path: Path) -> Exchange:
    """Write complete attempts 1, 9 and 10, and attempt 11 without an index."""
    for attempt in (1, 9, 10, 11):
        ffq.write_v1(tmp_path, (7, 0, 0, attempt), ROWS, index=attempt != 11)
    return Exchange(str(tmp_path))


@pytest.fixture
def damaged_root(ffq_root: Exchange) -> Exchange:
    """Damage the index of attempt 10, the largest complete one."""
    Path(ffq_root.root, "shuffle/7/0/0/10/index.bin").write_bytes(b"FFQI")
    return ffq_root


def test_the_registered_attempt_counts_though_another_is_larger_and_complete(scene: Scene) -> None:
    step, _ = scene.twins()
    query = step.body.query
    assert scene.exchange.available_attempts(query, 0, 0) == [1, 2]
    assert scene.exchange.latest_attempt(query, 0, 0) == 1
    assert scene.exchange.resolve(query) == {0: Resolved(1, "named by the step record")}


def test_the_registered_attempt_counts_even_when_its_files_are_gone(scene: Scene) -> None:
    step, _ = scene.twins()
    query = step.body.query
    scene.store.delete_many(sorted(scene.data(query, 1)))
    assert scene.exchange.latest_attempt(query, 0, 0) == 1


@pytest.mark.parametrize("ended", [False, True])
def test_without_a_step_the_largest_complete_attempt_counts(scene: Scene, ended: bool) -> None:
    query = scene.begin()
    for attempt in (1, 2):
        scene.attempt(query, attempt)
    scene.store.write(f"shuffle/{query.query}/0/0/3/part-0.ipc", [b"half"])
    if ended:
        scene.exchange.cancel(query.query, "")
    assert scene.exchange.available_attempts(query.query, 0, 0) == [1, 2, 3]
    assert scene.exchange.latest_attempt(query.query, 0, 0) == 2
    (resolved,) = scene.exchange.resolve(query.query).values()
    assert resolved.attempt == 2 and "largest complete" in resolved.why


def test_in_a_root_of_ffq_numbers_are_compared_as_numbers_and_incomplete_attempts_skipped(
    ffq_root: Exchange,
) -> None:
    assert ffq_root.available_attempts(7, 0, 0) == [1, 9, 10, 11]
    assert ffq_root.latest_attempt(7, 0, 0) == 10
    assert {m: r.attempt for m, r in ffq_root.resolve(7, 0).items()} == {0: 10}


def test_a_damaged_attempt_is_the_same_error_as_in_a_read(damaged_root: Exchange) -> None:
    """Whoever asks for the attempt that counts must not be given one that no read returns."""
    path = f"{damaged_root.root}/shuffle/7/0/0/10/index.bin"
    for ask in (
        damaged_root.read,
        lambda: damaged_root.fetch(7, 0, 0),
        lambda: damaged_root.latest_attempt(7, 0, 0),
        lambda: damaged_root.resolve(7),
    ):
        with pytest.raises(CorruptIndex) as caught:
            ask()
        assert caught.value.path == path
    assert damaged_root.latest_attempt(7, 0, 0, "ffq") == 11
    assert damaged_root.available_attempts(7, 0, 0) == [1, 9, 10, 11]


def test_the_rule_of_ffq_is_the_largest_number_whatever_it_is(
    ffq_root: Exchange, scene: Scene
) -> None:
    assert ffq_root.latest_attempt(7, 0, 0, "ffq") == 11
    assert ffq_root.resolve(7, rule="ffq") == {0: Resolved(11, "largest number")}
    step, _ = scene.twins()
    assert scene.exchange.latest_attempt(step.body.query, 0, 0, rule="ffq") == 2


def test_a_map_task_without_any_complete_attempt_is_left_out(tmp_path: Path) -> None:
    ffq.write_v1(tmp_path, (7, 0, 0, 1), ROWS)
    ffq.write_v1(tmp_path, (7, 0, 1, 1), ROWS, index=False)
    exchange = Exchange(str(tmp_path))
    assert exchange.resolve(7).keys() == {0}
    assert exchange.resolve(7, rule="ffq").keys() == {0, 1}


@pytest.mark.parametrize("rule", ["registered", "ffq"])
def test_no_attempts_say_so_in_ffqs_words(ffq_root: Exchange, rule: str) -> None:
    with pytest.raises(NoAttempts, match="no shuffle attempts found for map task") as caught:
        ffq_root.latest_attempt(7, 0, 5, rule)
    assert caught.value.path == f"{ffq_root.root}/shuffle/7/0/5"


def test_neither_a_map_task_nor_a_stage_that_the_step_does_not_name_has_an_attempt(
    scene: Scene,
) -> None:
    step, _ = scene.twins()
    for stage, map_task in ((0, 5), (1, 0)):
        with pytest.raises(NoAttempts):
            scene.exchange.latest_attempt(step.body.query, stage, map_task)
    with pytest.raises(QueryNotFound):
        scene.exchange.resolve(step.body.query, 1)


def test_an_attempt_that_is_not_registered_is_refused_in_ffqs_words(scene: Scene) -> None:
    step, _ = scene.twins()
    attempts = StageAttempts.read(scene.store, step.body.query, 0)
    for attempt in ("registered", "latest", "1"):
        assert attempts.index(0, attempt).id == AttemptId(step.body.query, 0, 0, 1)
    with pytest.raises(NotRegistered, match="not registered for requested attempt") as caught:
        attempts.index(0, "2")
    assert str(caught.value).startswith(
        "[FFQ_NOT_REGISTERED] map output not registered for requested attempt"
    )


def test_where_no_step_is_every_complete_attempt_may_be_read(scene: Scene) -> None:
    query = scene.begin()
    for attempt in (1, 2):
        scene.attempt(query, attempt)
    attempts = StageAttempts.read(scene.store, query.query, 0)
    assert [attempts.index(0, str(attempt)).id.attempt for attempt in (1, 2)] == [1, 2]
    with pytest.raises(NotRegistered):
        attempts.index(0, "3")


def test_a_damaged_index_is_an_error_unless_it_is_taken(damaged_root: Exchange) -> None:
    store = Store(damaged_root.root)
    ids = list(stored.stored_attempts(store, 7, 0, 0))
    with pytest.raises(CorruptIndex):
        list(complete_attempts(store, ids))
    damaged: list[CorruptIndex] = []
    assert [index.id.attempt for index in complete_attempts(store, ids, damaged.append)] == [9, 1]
    assert [error.path for error in damaged] == [f"{damaged_root.root}/shuffle/7/0/0/10/index.bin"]


def test_a_rule_that_does_not_exist_is_refused(ffq_root: Exchange) -> None:
    with pytest.raises(BadOption, match="registered, ffq"):
        ffq_root.latest_attempt(7, 0, 0, "largest")
    with pytest.raises(BadOption, match="registered, ffq"):
        ffq_root.resolve(7, rule="largest")
