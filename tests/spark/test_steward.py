"""The steward as a real process over real pipes, without a Spark session."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from steward_process import APP, Driver, Steward, wait_for

from ffq_spark.exchange.ledger.cancel import end_unfinished, request_cancel
from ffq_spark.format import paths
from ffq_spark.format.ids import now_ms

Start = Callable[..., Steward]


@pytest.fixture
def start() -> Iterator[Start]:
    with contextlib.ExitStack() as stack:

        def make(**hello: Any) -> Steward:
            steward = Steward(**hello)
            stack.enter_context(steward.process)
            stack.callback(steward.process.kill)
            return steward

        yield make


@pytest.fixture
def driver(root: str) -> Driver:
    return Driver(root)


@pytest.fixture
def beside(tmp_path: Path) -> Driver:
    return Driver(str(tmp_path / "beside"))


def test_events_become_pieces_of_the_log(start: Start, driver: Driver) -> None:
    steward = start()
    steward.send(driver.open(), driver.event("job_start", stage=1, tasks=600))
    for number in range(600):
        steward.send(driver.task("task_start", number))
    driver.meet(steward)
    steward.send(driver.task("task_end", 3, state="SUCCESS", finish_ms=9))
    steward.close()
    log = driver.log()
    assert sorted(log.tasks) == list(range(600)) and log.totals == {1: 600}
    assert log.tasks[3].state == "SUCCESS"
    pieces = driver.store.list(f"{paths.ATTEMPTS}/{APP}")
    assert [entry.name for entry in pieces] == [
        f"{driver.query}.{piece:06d}.jsonl" for piece in (1, 2, 3)
    ]


def test_events_of_a_query_that_was_never_opened_are_left_out(start: Start, driver: Driver) -> None:
    steward = start()
    steward.send(driver.task("task_start", 1), driver.open())
    driver.meet(steward)
    assert driver.log().tasks == {}


def test_a_lease_is_renewed_by_beats_alone(start: Start, driver: Driver) -> None:
    steward = start(lease_seconds=7)
    steward.send(driver.open())
    first = driver.renewed()
    assert first.seconds == 7
    for _ in range(3):
        driver.meet(steward)
    assert driver.lease() == first
    steward.send({"event": "beat"})
    second = wait_for(lambda: (now := driver.lease()) != first and now)
    assert second.renewed_at_ms > first.renewed_at_ms
    driver.meet(steward)
    assert driver.lease() == second


def test_the_lease_of_a_root_without_work_is_renewed_no_more(
    start: Start, driver: Driver, beside: Driver
) -> None:
    steward = start()
    steward.send(driver.open(), beside.open())
    driver.meet(steward)
    end_unfinished(driver.store, driver.query, "")
    steward.send(driver.give_up())
    assert steward.next_order() == {"order": "settled", "query": driver.query}
    idle, busy = driver.lease(), beside.lease()
    for _ in range(3):
        steward.send({"event": "beat"})
        beside.meet(steward)
    wait_for(lambda: beside.lease() != busy)
    assert driver.lease() == idle


def test_what_happens_after_a_query_has_ended_is_still_recorded(
    start: Start, driver: Driver
) -> None:
    """Spark kills the losing attempts of a step after the step's commit."""
    steward = start()
    steward.send(driver.open(), driver.task("task_start", 1))
    driver.meet(steward)
    end_unfinished(driver.store, driver.query, "")
    steward.send(driver.give_up(), {"event": "beat"})
    assert steward.next_order()["order"] == "settled"
    steward.send(driver.task("task_end", 1, state="KILLED"), {"event": "beat"})
    wait_for(lambda: driver.log().tasks[1].state == "KILLED")


def test_a_request_to_cancel_is_told_once(start: Start, driver: Driver, beside: Driver) -> None:
    steward = start()
    steward.send(driver.open(), beside.open())
    request_cancel(driver.store, driver.query, "too slow", who="ann")
    assert steward.orders(30)
    for _ in range(3):
        steward.send({"event": "beat"})
        beside.meet(steward)
    time.sleep(2.5)
    orders = [json.loads(line) for line in steward.close()[0].splitlines()]
    assert [order for order in orders if order["order"] != "answer"] == [
        {
            "order": "cancel",
            "query": driver.query,
            "message": "[FFQ_CANCELED] canceled by ann: too slow",
        }
    ]


def test_a_driver_that_says_goodbye_gives_its_leases_back(
    start: Start, driver: Driver, beside: Driver
) -> None:
    steward = start()
    steward.send(driver.open(), beside.open(), driver.task("task_start", 1))
    beside.renewed()
    steward.send({"event": "bye"})
    steward.close()
    assert driver.lease() is None and beside.lease() is None
    assert list(driver.log().tasks) == [1]


def test_a_driver_that_just_ends_keeps_its_lease_and_its_log(start: Start, driver: Driver) -> None:
    steward = start()
    steward.send(driver.open(), driver.task("task_start", 1))
    lease = driver.renewed()
    steward.close()
    assert driver.lease() == lease
    assert list(driver.log().tasks) == [1]


def test_ctrl_c_does_not_reach_it(start: Start, driver: Driver) -> None:
    steward = start()
    steward.send(driver.open())
    driver.meet(steward)
    steward.process.send_signal(signal.SIGINT)
    driver.meet(steward)
    steward.close()


def test_storage_that_never_answers_does_not_keep_it(start: Start, driver: Driver) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        storage = {"storage.endpoint_url": f"http://127.0.0.1:{port}"}
        keys = {"storage.key": "k", "storage.secret": "s"}
        steward = start()
        steward.send(
            driver.event("open", storage={**storage, **keys}) | {"root": "s3://bucket/x"},
            {"event": "beat"},
        )
        silent.settimeout(30)
        connection, _ = silent.accept()
        with connection:
            steward.close()


def test_one_roots_storage_does_not_hold_up_anothers_lease(start: Start, driver: Driver) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        keys = {"storage.key": "k", "storage.secret": "s"}
        silence = {"storage.endpoint_url": f"http://127.0.0.1:{port}", **keys}
        steward = start()
        hanging = {"root": "s3://bucket/x", "query": 1}
        steward.send({"event": "open", "storage": silence} | hanging, driver.open())
        lease = driver.renewed()
        steward.send({"event": "job_end"} | hanging, {"event": "beat"})
        lease = wait_for(lambda: (now := driver.lease()) != lease and now)
        steward.send({"event": "beat"})
        wait_for(lambda: driver.lease() != lease)
        steward.process.kill()


def test_a_lease_is_renewed_again_once_storage_is_back(start: Start, driver: Driver) -> None:
    steward = start()
    steward.send(driver.open())
    driver.renewed()
    folder = Path(driver.place.root, paths.LEASES)
    shutil.rmtree(folder)
    folder.write_text("in the way")
    steward.send({"event": "beat"})
    driver.meet(steward)
    folder.unlink()
    steward.send({"event": "beat"})
    driver.renewed()
    _, complaints = steward.close()
    assert "was not renewed" in complaints


def test_beats_are_answered(start: Start) -> None:
    steward = start()
    steward.send({"event": "beat"}, {"event": "beat"})
    lines = steward.close()[0].splitlines()
    assert [json.loads(line) for line in lines] == [{"order": "answer"}] * 2


def test_the_next_steward_of_a_driver_adds_to_the_log(start: Start, driver: Driver) -> None:
    for run in (0, 1):
        steward = start(run=run)
        steward.send(driver.open(), driver.task("task_start", run))
        steward.close()
    assert sorted(driver.log().tasks) == [0, 1]


@pytest.mark.parametrize(
    "line",
    [
        b"{\n",
        b"\xff\xfe\n",
        b"[]\n",
        b'{"event": "open"}\n',
        b'{"event": "task_start"}\n',
        b'{"event": "open", "root": "nosuch://x", "query": 1, "storage": {}}\n',
        b'{"event": "open", "root": "", "query": 1, "storage": {}}\n',
        b'{"event": "open", "root": "/dev/null/x", "query": 1, "storage": {}}\n{"event": "beat"}\n',
    ],
)
def test_whatever_one_event_is_the_others_are_served(
    start: Start, driver: Driver, line: bytes
) -> None:
    steward = start()
    steward.write(line)
    steward.send(driver.open())
    driver.meet(steward)
    lease = driver.lease()
    steward.send({"event": "beat"})
    wait_for(lambda: driver.lease() != lease)
    _, complaints = steward.close()
    assert "ffq_spark steward: " in complaints and "Traceback" not in complaints


@pytest.mark.parametrize("first", ["root", "open"])
@pytest.mark.parametrize(
    ("url", "storage"),
    [
        ("s4://bucket/x", {}),
        ("", {}),
        ("s3://key:secret@bucket/x", {}),
        ("s3://bucket/x", {"storage.client_kwargs": "{"}),
    ],
    ids=["no such scheme", "no path", "credentials", "damaged options"],
)
def test_a_write_to_an_unusable_root_is_settled_and_others_keep_their_leases(
    start: Start, driver: Driver, first: str, url: str, storage: dict[str, str]
) -> None:
    """The driver sends such roots too: it learns of a write before its options are checked."""
    steward = start()
    steward.send(driver.open())
    lease = driver.renewed()
    refused = {"root": url, "query": 1}
    steward.send(
        {"event": first, "storage": storage, **refused},
        {"event": "task_start", **refused},
        {"event": "ended", "time": now_ms(), **refused},
    )
    assert steward.next_order() == {"order": "settled", "query": 1}
    steward.send({"event": "beat"})
    wait_for(lambda: driver.lease() != lease)
    driver.meet(steward)
    _, complaints = steward.close()
    assert "Traceback" not in complaints and "secret" not in complaints


def test_nothing_is_lost_while_storage_fails(start: Start, driver: Driver, beside: Driver) -> None:
    """A file in place of the logs' directory makes writes of events fail until it is deleted."""
    obstacle = Path(driver.place.root, paths.ATTEMPTS)
    obstacle.write_text("in the way")
    steward = start()
    steward.send(driver.open(), beside.open())
    for number in range(3):
        steward.send(driver.task("task_start", number), driver.event("job_end"), {"event": "beat"})
    beside.meet(steward)
    obstacle.unlink()
    steward.send({"event": "beat"})
    wait_for(lambda: sorted(driver.log().tasks) == [0, 1, 2])


def test_cleanup_runs_with_the_beats_if_it_is_wanted(start: Start, driver: Driver) -> None:
    garbage = driver.ended().query
    steward = start(cleanup=True, cleanup_interval_seconds=3600, cleanup_ttl_seconds=0)
    steward.send({"event": "beat"}, driver.open())
    driver.meet(steward)
    assert driver.data(garbage) != set()
    steward.send({"event": "beat"})
    wait_for(lambda: driver.data(garbage) == set())
    assert driver.ledger.outcome(driver.query) is None


def test_it_needs_no_pyspark() -> None:
    code = "import sys, ffq_spark.spark.steward; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
