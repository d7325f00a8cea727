"""Processes that a test moves one storage operation at a time, and can kill between any two.

A process is a thread, and only one thread runs at a time. A test can therefore make and repeat
every interleaving of their operations. The processes share a local directory or files in memory; in
memory a process can also be killed in the middle of a file.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ffq_spark.store import Directory, Entry, Leftover, Store
from ffq_spark.store.backend import Skip
from ffq_spark.store.local import LocalBackend

Files = dict[str, bytes]

# The changes that decide which steps readers see; all other changes prepare them.
DECIDING = (
    "change _ffq/pending",
    ".outcome.json",
    "change _ffq/exchange.json",
    "change _ffq/steps",
)


def new_directory() -> str:
    """Make an empty directory, in memory if possible: a test run makes thousands of small files."""
    memory = "/dev/shm"
    return tempfile.mkdtemp(prefix="ffq-", dir=memory if os.path.isdir(memory) else None)


class Killed(BaseException):
    """Ends a process at once; no later operation of the process reaches storage."""


class FakeTime:
    """A clock that a test sets, as a replacement for the module `time`."""

    def __init__(self, milliseconds: int) -> None:
        self.now = milliseconds

    def time_ns(self) -> int:
        return self.now * 1_000_000


class SharedFiles(LocalBackend):
    """Files in a dict, with a gate before every operation.

    It extends the local backend so that the store does all work in the calling thread.
    """

    def __init__(self, files: Files, gate: Callable[[str], None]) -> None:
        super().__init__("/memory")
        self._files = files
        self._gate = gate

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        self._gate(f"read {path}")
        if path not in self._files:
            raise FileNotFoundError(path)
        data = self._files[path]
        return data if start == 0 and length is None else data[start:][:length]

    def create(self, path: str, data: bytes) -> None:
        self._gate(f"create {path}")
        if path in self._files:
            raise FileExistsError(path)
        self._files[path] = bytes(data)

    def write(self, path: str, pieces: Iterable[memoryview]) -> None:
        """Write piece by piece: readers see half a file, as on a disk.

        A file that is deleted meanwhile comes back, as on an object store.
        """
        self._gate(f"write {path}")
        data = self._files[path] = b""
        for piece in pieces:
            self._gate(f"write {path}")
            data = self._files[path] = data + bytes(piece)

    def replace(self, path: str, data: bytes) -> None:
        self._gate(f"replace {path}")
        self._files[path] = bytes(data)

    def delete(self, path: str) -> None:
        self._gate(f"delete {path}")
        self._files.pop(path, None)

    def delete_many(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.delete(path)

    def delete_directories(self, paths: Iterable[str]) -> None:
        pass

    def tree(self, path: str, skip: Callable[[str], bool]) -> Iterator[Directory]:
        """List each directory when the walk reaches it: concurrent changes may be visible."""
        self._gate(f"walk {path}")
        below = {p.rpartition("/")[0] for p in self._files if p.startswith(f"{path}/")}
        for directory in sorted(below):
            if not skip(directory):
                self._gate(f"walk {directory}")
                inside = (p for p in self._files if p.rpartition("/")[0] == directory)
                yield Directory(directory, [(p, len(self._files[p])) for p in inside])

    def leftovers(self, before_ms: int) -> Iterator[Leftover]:
        yield from ()

    def delete_leftover(self, leftover: Leftover) -> None:
        self.delete(leftover.path)

    def clock_ms(self) -> int | None:
        return None

    def scan(self, path: str) -> Iterator[Entry]:
        self._gate(f"list {path}")
        entries: dict[str, Entry] = {}
        for full, data in self._files.items():
            if full.startswith(f"{path}/"):
                name, slash, _ = full[len(path) + 1 :].partition("/")
                entries[name] = Entry(name, bool(slash), 0 if slash else len(data))
        yield from entries.values()


class _GatedDirectory(LocalBackend):
    """Files in a local directory, with a gate around each operation."""

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


def open_store(files: Files, watch: Callable[[str], None] = lambda _: None) -> Store:
    """Open a store over files in memory; `watch` is called before each operation."""
    return Store("/memory", backend=SharedFiles(files, watch))


class Process:
    """Work that waits before each of its storage operations until it is advanced.

    `place` is the path of a local directory, or files in memory. Operations on a directory
    are named `read` or `change <path>`; operations on files in memory by their kind and path.
    """

    def __init__(self, place: str | Files, work: Callable[[Store], Any]) -> None:
        self._turn, self._waiting = threading.Semaphore(0), threading.Semaphore(0)
        self._kill = False
        self._fault = ""
        self.killed = False
        self.next = ""
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None
        if isinstance(place, str):
            store = Store(place, backend=_GatedDirectory(place, self._gate))
        else:
            store = open_store(place, self._wait)
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

    def _wait(self, operation: str) -> None:
        self.next = operation
        if not self._kill:
            self._waiting.release()
            self._turn.acquire()
        if self._kill:
            raise Killed

    @contextmanager
    def _gate(self, operation: str) -> Iterator[None]:
        self._wait(operation)
        fault, self._fault = self._fault, ""
        if fault == "refused":
            raise PermissionError("refused")
        yield
        if fault == "lost":
            raise TimeoutError("no answer")

    def fail_next(self, fault: str) -> None:
        """Fail the next operation: `refused` does no work, `lost` loses only the answer."""
        self._fault = fault

    def advance(self, operations: int = 1) -> None:
        """Run at most this number of operations."""
        for _ in range(operations):
            if self.done:
                return
            self._turn.release()
            self._waiting.acquire()

    def advance_to(self, *operations: str) -> None:
        """Run one operation, and then more until the next one's name contains one of the texts."""
        self.advance()
        while operations and not self.done and not any(part in self.next for part in operations):
            self.advance()

    def finish(self) -> Any:
        """Run to the end, and return the result of the work or raise its error."""
        while not self.done:
            self.advance()
        if self.error is not None:
            raise self.error
        return self.result

    def kill(self) -> None:
        """End the process without another operation."""
        if not self.done:
            self._kill = self.killed = True
            self._turn.release()
            self._waiting.acquire()
        self._thread.join()


def kill_points(files: Files, work: Callable[[Store], Any]) -> Iterator[Files]:
    """Yield the files that remain if the process is killed before its 1st, 2nd, … operation."""
    operations = 0
    while True:
        copy = dict(files)
        process = Process(copy, work)
        process.advance(operations)
        done = process.done
        process.kill()
        assert process.error is None or isinstance(process.error, Killed)
        yield copy
        if done:
            return
        operations += 1


def interleaved(
    files: Files, first: Callable[[Store], Any], second: Callable[[Store], Any]
) -> Iterator[tuple[Files, Process]]:
    """Run all of `second` before each operation of `first`, and after the last one."""
    operations, done = 0, False
    while not done:
        copy = dict(files)
        process = Process(copy, first)
        process.advance(operations)
        done = process.done
        second(open_store(copy))
        while not process.done:
            process.advance(1)
        yield copy, process
        operations += 1
