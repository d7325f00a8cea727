"""Registered attempts are equal in memory and in JSON, and need little memory."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffq_spark.format.records import Outcome, OutcomeRecord, StepBody
from ffq_spark.format.registered import Registered, take_registered

attempts = st.dictionaries(st.integers(0, 50), st.integers(0, 3), max_size=20)


def body(registered: Registered) -> StepBody:
    return StepBody(
        query=5,
        mode="append",
        stage=0,
        rows=1,
        bytes=2,
        parts=1,
        registered=registered,
        manifest="_ffq/manifests/5.arrow",
        manifest_bytes=3,
        manifest_checksum=4,
        committed_at_ms=6,
    )


@given(attempts)
def test_runs_name_the_same_attempts(attempt_by_task: dict[int, int]) -> None:
    registered = Registered.of(attempt_by_task)
    assert {task: registered.get(task) for task in range(-1, 60)} == {
        task: attempt_by_task.get(task) for task in range(-1, 60)
    }
    assert body(registered).attempts == attempt_by_task
    assert len(list(registered)) <= len(attempt_by_task)


@given(attempts, st.sampled_from([None, 0, 2]), st.text())
def test_runs_are_read_as_json_reads_them(
    attempt_by_task: dict[int, int], indent: int, text: str
) -> None:
    """The runs are found within any text and with any indentation."""
    runs = [list(run) for run in Registered.of(attempt_by_task)]
    misleading = f'{text} "registered": [[7, 7, 7]]'
    document = {
        "message": misleading,
        "step": {"stage": 0, "registered": runs, "manifest": misleading},
    }
    rest, registered = take_registered(json.dumps(document, indent=indent).encode())
    if runs:
        assert registered is not None and [list(run) for run in registered] == runs
        assert json.loads(rest) == {**document, "step": {**document["step"], "registered": []}}
    else:
        assert registered is None and json.loads(rest) == document


@pytest.mark.parametrize(
    "runs",
    [
        *("[[0, 0, 1]", "[[0, 0, 1],]", "[[0, 0, 1] [1, 1, 1]]", "[[0, 0]]", "[[0, 0, 1, 1]]"),
        *("[[00, 0, 1]]", "[[-1, 0, 1]]", "[[0, 0, 1.5]]", "[[0, 0, 1], [0, 0, 2]]", "[[2, 1, 1]]"),
        f"[[0, 0, {1 << 63}]]",
    ],
)
def test_what_is_not_as_we_write_it_is_left_to_json(runs: str) -> None:
    data = f'{{"registered": {runs}, "stage": 0}}'.encode()
    assert take_registered(data) == (data, None)


@pytest.mark.parametrize("runs", [[(1, 0, 1)], [(0, 1, 1), (1, 2, 1)], [(-1, 0, 1)], [(0, 0, -1)]])
def test_runs_that_say_two_things_are_refused(runs: list[tuple[int, int, int]]) -> None:
    with pytest.raises(ValueError, match="by attempt"):
        Registered(runs)


def test_a_step_of_many_map_tasks_is_read_in_little_memory() -> None:
    """All attempt numbers differ, so that no map tasks are joined to runs."""
    tasks = 20_000
    step = body(Registered.of({task: task + 1 for task in range(tasks)}))
    data = OutcomeRecord(5, Outcome.COMMITTED, 1, "n", step=step).encode()
    tracemalloc.start()
    try:
        record = OutcomeRecord.decode(data, "file")
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert record.step is not None and record.step.registered == step.registered
    assert peak < 40 * tasks
    assert held < 30 * tasks
