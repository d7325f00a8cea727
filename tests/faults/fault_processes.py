"""Forked processes for fault tests; a fresh interpreter for each would take a second."""

from __future__ import annotations

import os
import pickle
import signal
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

Work = Callable[[], Any]


class ChildFailed(AssertionError):
    """A child raised an error; the message is the child's traceback."""


@dataclass(frozen=True)
class Child:
    """A running child process, and the pipe that delivers its result."""

    pid: int
    result: int


def start(work: Work, *, closing: Sequence[int] = ()) -> Child:
    """Run work in a forked child, which closes these descriptors first."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return Child(pid, reading)
    # Skip the parent's exit handlers, which would stop the parent's Spark.
    try:
        for descriptor in closing:
            os.close(descriptor)
        try:
            answer = (True, work())
        except BaseException:
            answer = (False, traceback.format_exc())
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(answer, pipe)
    finally:
        os._exit(0)


def finish(child: Child) -> Any:
    """Wait for a child and return its result, or None if it was killed."""
    with os.fdopen(child.result, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child.pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return None
    assert data, "a child ended without a result"
    fine, answer = pickle.loads(data)
    if not fine:
        raise ChildFailed(answer)
    return answer


def stop(child: Child) -> None:
    """Kill a child if it still runs, and free its resources."""
    os.kill(child.pid, signal.SIGKILL)
    os.close(child.result)
    os.waitpid(child.pid, 0)


def run(work: Work) -> Any:
    """Run work in another process, and return its result."""
    return finish(start(work))


def at_once(works: Sequence[Callable[[Work], Any]]) -> list[Any]:
    """Run each work in its own process; its argument is a function that waits for the others."""
    ready_r, ready_w = os.pipe()
    gate_r, gate_w = os.pipe()

    def meet() -> None:
        os.write(ready_w, b".")
        os.read(gate_r, 1)

    def run_to_end(work: Callable[[Work], Any]) -> Any:
        try:
            return work(meet)
        finally:
            # A process that fails before it meets the others must not keep them waiting.
            os.write(ready_w, b".")

    children: list[Child] = []
    try:
        for work in works:
            children.append(start(lambda work=work: run_to_end(work), closing=[gate_w]))
        os.close(ready_w)
        arrived = 0
        while arrived < len(works) and (met := os.read(ready_r, len(works))):
            arrived += len(met)
        # Closing the pipe opens the gate: all waiting reads end at the same moment.
        os.close(gate_w)
        results = []
        while children:
            results.append(finish(children.pop(0)))
        return results
    finally:
        for descriptor in (ready_r, gate_r):
            os.close(descriptor)
        with suppress(OSError):
            os.close(gate_w)
        for child in children:
            stop(child)
