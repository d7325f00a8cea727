"""The log of the listener's task events, which explains attempts and never decides on them."""

from __future__ import annotations

import json

import pytest
from conftest import Place
from task_events import APP, ended, task

from ffq_spark.exchange.attempts.task_log import read_logs, write_events
from ffq_spark.format import paths
from ffq_spark.store import Store


@pytest.fixture
def store(place: Place) -> Store:
    return Store(place.root, place.storage_options)


def test_pieces_are_one_log_in_their_order(store: Store) -> None:
    events = [task("task_start", n) for n in range(3)] + [ended(n) for n in range(3)]
    for piece, event in enumerate(events, start=7):
        write_events(store, APP, 5, piece, [event])
    log = read_logs(store, 5)[5]
    assert sorted(log.tasks) == [0, 1, 2]
    assert {t.state for t in log.tasks.values()} == {"SUCCESS"}


def test_logs_are_told_apart_by_query(store: Store) -> None:
    write_events(store, APP, 5, 1, [task("task_start", 0)])
    write_events(store, APP, 50, 1, [task("task_start", 1)])
    write_events(store, "app-2", 6, 1, [task("task_start", 2)])
    assert {query: list(log.tasks) for query, log in read_logs(store).items()} == {
        5: [0],
        50: [1],
        6: [2],
    }
    assert read_logs(store, 5).keys() == {5}
    assert read_logs(store, 7) == {}


def test_the_end_of_a_task_may_come_without_its_start(store: Store) -> None:
    write_events(store, APP, 5, 1, [ended(3, "FAILED", reason="boom", map_task=2)])
    task = read_logs(store)[5].tasks[3]
    assert (task.state, task.reason, task.map_task, task.finish_ms) == ("FAILED", "boom", 2, 9)
    assert task.attempt == 4


def test_a_start_that_comes_after_the_end_opens_nothing_again(store: Store) -> None:
    write_events(store, APP, 5, 1, [ended(3), task("task_start", 3)])
    assert read_logs(store)[5].tasks[3].state == "SUCCESS"


@pytest.mark.parametrize(
    "line",
    [
        b'{"event": "task_start", "task": 1',
        b"\xff\xfe",
        b"",
        b"5",
        b"[1]",
        b"null",
        b'{"event": "task_start"}',
        b'{"event": "job_start", "stage": "x", "tasks": 1}',
        json.dumps(task("task_start", 1, map_task="zero")).encode(),
    ],
)
def test_a_line_that_cannot_be_read_is_left_out_and_all_others_stay(
    store: Store, line: bytes
) -> None:
    good = [json.dumps(ended(n)).encode() for n in (0, 2)]
    path = paths.task_log(APP, 5, 1)
    store.write(path, [b"\n".join([good[0], line, good[1]])])
    assert sorted(read_logs(store)[5].tasks) == [0, 2]


def test_keys_of_a_later_version_are_ignored(store: Store) -> None:
    event = {"event": "a_new_kind", "x": 1}
    write_events(store, APP, 5, 1, [ended(0, planet="Mars"), event])
    log = read_logs(store)[5]
    assert log.tasks[0].state == "SUCCESS" and log.events == [event]


def test_names_that_are_no_logs_are_ignored(store: Store) -> None:
    write_events(store, APP, 5, 1, [ended(0)])
    store.write(f"{paths.ATTEMPTS}/{APP}/notes.txt", [b"hello"])
    store.write(f"{paths.ATTEMPTS}/{APP}/007.000001.jsonl", [json.dumps(ended(1)).encode()])
    assert read_logs(store).keys() == {5}
