"""Processes that move one storage operation at a time, in any order, and can die between two.

They are threads of which only one ever runs: the test decides which, so every interleaving of
their operations can be made, and made again.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ffq_spark.store import Directory, Entry, Store
from ffq_spark.store.backend import Skip
from ffq_spark.store.local import LocalBackend

# The changes that decide what readers see; all others only prepare.
DECIDING = (
    "change _ffq/pending",
    ".outcome.json",
    "change _ffq/exchange.json",
    "change _ffq/steps",
)


def new_directory() -> str:
    """An empty directory, in memory if possible: a campaign makes thousands of small files."""
    memory = "/dev/shm"
    return tempfile.mkdtemp(prefix="ffq-", dir=memory if os.path.isdir(memory) else None)


class Killed(BaseException):
    """Ends a process where it stands; nothing it does afterwards reaches storage."""


class _Gated(LocalBackend):
    """Local files, with a gate around each operation."""

    def __init__(self, root: str, gate: Callable[[str], AbstractContextManager[None]]) -> None:
        super().__init__(root)
        self._gate = gate

    def read(self, path: str, start: int = 0, length: int | None = None) -> Any:
        with self._gate("read"):
            return super().read(path, start, length)

    def create(self, path: str, data: bytes) -> None:
        with self._gate(f"change {path}"):
            super().create(path, data)

    def write(self, path: str, pieces: Iterable[memoryview]) -> None:
        with self._gate(f"change {path}"):
            super().write(path, pieces)

    def scan(self, path: str) -> Iterator[Entry]:
        with self._gate("read"):
            return super().scan(path)

    def delete(self, path: str) -> None:
        with self._gate(f"change {path}"):
            super().delete(path)

    def delete_many(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.delete(path)

    def tree(self, path: str, skip: Skip) -> Iterator[Directory]:
        with self._gate("read"):
            return super().tree(path, skip)


class Process:
    """Work that waits before each of its storage operations until it is advanced."""

    def __init__(self, root: str, work: Callable[[Store], Any]) -> None:
        self._turn, self._waiting = threading.Semaphore(0), threading.Semaphore(0)
        self._kill = False
        self._fault = ""
        self.next = ""
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None
        store = Store(root)
        store._backend = _Gated(root, self._gate)
        self._thread = threading.Thread(target=self._run, args=[work, store], daemon=True)
        self._thread.start()
        self._waiting.acquire()

    def _run(self, work: Callable[[Store], Any], store: Store) -> None:
        try:
            self.result = work(store)
        except BaseException as error:
            self.error = error
        self.done = True
        self._waiting.release()

    @contextmanager
    def _gate(self, operation: str) -> Iterator[None]:
        self.next = operation
        if not self._kill:
            self._waiting.release()
            self._turn.acquire()
        if self._kill:
            raise Killed
        fault, self._fault = self._fault, ""
        if fault == "refused":
            raise PermissionError("refused")
        yield
        if fault == "lost":
            raise TimeoutError("no answer")

    def fail_next(self, fault: str) -> None:
        """Let its next operation fail: `refused`, or done with the answer `lost`."""
        self._fault = fault

    def advance(self, *until: str) -> None:
        """Let it do one operation, and more until the next is one of these or it is done."""
        moved = False
        while not self.done and not (moved and self._is_before(until)):
            self._turn.release()
            self._waiting.acquire()
            moved = True

    def _is_before(self, operations: Sequence[str]) -> bool:
        return not operations or any(operation in self.next for operation in operations)

    def finish(self) -> Any:
        """Let it run to its end, and give what it gave."""
        while not self.done:
            self.advance()
        if self.error is not None:
            raise self.error
        return self.result

    def kill(self) -> None:
        """Let it end without another operation."""
        if not self.done:
            self._kill = True
            self._turn.release()
            self._waiting.acquire()
        self._thread.join()
