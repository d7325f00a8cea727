"""The steward as a real process, and a driver that sends events to it."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from conftest import Place
from gc_scene import Scene

from ffq_spark.exchange.attempts.task_log import TaskLog, read_logs
from ffq_spark.exchange.ledger import leases
from ffq_spark.format.ids import now_ms
from ffq_spark.format.records import LeaseRecord
from ffq_spark.shared_names import StewardProgram

APP = "app-1"
EXIT_SECONDS = 10
Event = dict[str, Any]


def wait_for(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 60
    while not (value := condition()):
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)
    return value


class Steward:
    """A steward's process, and the driver's side of its pipes."""

    def __init__(self, **hello: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", StewardProgram.MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.send({"event": "hello", "initiator": APP, "lease_seconds": 30, **hello})

    def send(self, *events: Event) -> None:
        self.write(b"".join(json.dumps(event).encode() + b"\n" for event in events))

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def orders(self, seconds: float) -> bool:
        """Return whether the steward sends anything to the driver within this time."""
        return bool(select.select([self.process.stdout], [], [], seconds)[0])

    def next_order(self) -> Event:
        """Return the next order that is not an answer to a beat."""
        assert self.process.stdout is not None
        while True:
            order: Event = json.loads(self.process.stdout.readline())
            if order["order"] != "answer":
                return order

    def close(self) -> tuple[str, str]:
        """Close the pipe, and return the rest of the process's stdout (orders) and stderr."""
        out, err = self.process.communicate(timeout=EXIT_SECONDS)
        assert self.process.returncode == 0
        return out.decode(), err.decode()


class Driver(Scene):
    """An exchange with one query of this application, and the events of the query."""

    def __init__(self, root: str) -> None:
        super().__init__(Place(root))
        self.query = self.begin().query
        self.jobs = 0
        # The writer takes the first lease, and the steward keeps it.
        leases.renew(self.store, APP, 5)
        self.first_lease = self.lease()

    def event(self, kind: str, **values: Any) -> Event:
        return {"event": kind, "root": self.place.root, "query": self.query, **values}

    def open(self) -> Event:
        return self.event("open", storage={})

    def give_up(self, at_ms: int | None = None) -> Event:
        return self.event("ended", time=now_ms() if at_ms is None else at_ms)

    def task(self, kind: str, number: int, **values: Any) -> Event:
        known = {"stage": 1, "stage_attempt": 0, "attempt_number": 0, "executor": "0", "host": "h"}
        own = {"task": number, "map_task": number, "speculative": False, "launch_ms": 5}
        return self.event(kind, **{**known, **own, **values})

    def log(self) -> TaskLog:
        return read_logs(self.store, self.query).get(self.query, TaskLog())

    def lease(self) -> LeaseRecord | None:
        return leases.read(self.store, APP)

    def renewed(self) -> LeaseRecord:
        """Wait until the steward has renewed the first lease, and return the new one."""
        renewed: LeaseRecord = wait_for(lambda: (now := self.lease()) != self.first_lease and now)
        return renewed

    def meet(self, steward: Steward) -> None:
        """Wait until the steward has handled everything that was sent."""
        self.jobs += 1
        steward.send(self.event("job_end", reason="", job=self.jobs))
        wait_for(lambda: self.jobs in [event.get("job") for event in self.log().events])
