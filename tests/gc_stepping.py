"""Many processes on one storage in memory, of which the test moves one operation at a time.

Processes are threads of which only one ever runs, so every interleaving of their operations can be
made, and made again; each can be killed between any two, also in the middle of a file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ffq_spark.store import Directory, Entry, Store
from ffq_spark.store.local import LocalBackend

Files = dict[str, bytes]


class Killed(BaseException):
    """Ends a process where it stands; nothing it does afterwards reaches storage."""


class FakeTime:
    """A clock that stands still until it is told; takes the place of the module `time`."""

    def __init__(self, milliseconds: int) -> None:
        self.now = milliseconds

    def time_ns(self) -> int:
        return self.now * 1_000_000


class SharedFiles(LocalBackend):
    """Files in a dict, with a gate before every operation.

    A kind of local storage only because the store then works in the calling thread alone.
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
        """Half a file is seen, as on a disk; a deleted one comes back, as on an object store."""
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
        """Each directory is listed when it is met: what comes or goes meanwhile may be seen."""
        self._gate(f"walk {path}")
        below = {p.rpartition("/")[0] for p in self._files if p.startswith(f"{path}/")}
        for directory in sorted(below):
            if not skip(directory):
                self._gate(f"walk {directory}")
                inside = (p for p in self._files if p.rpartition("/")[0] == directory)
                yield Directory(directory, [(p, len(self._files[p])) for p in inside])

    def remove_leftovers(self, before_ms: int, spared: Callable[[str], bool], dry_run: bool) -> int:
        return 0

    def clock_ms(self) -> int | None:
        return None

    def scan(self, path: str) -> Iterator[Entry]:
        self._gate(f"list {path}")
        found: dict[str, Entry] = {}
        for full, data in self._files.items():
            if full.startswith(f"{path}/"):
                name, slash, _ = full[len(path) + 1 :].partition("/")
                found[name] = Entry(name, bool(slash), 0 if slash else len(data))
        yield from found.values()


def open_store(files: Files, gate: Callable[[str], None] = lambda _: None) -> Store:
    store = Store("/memory")
    store._backend = SharedFiles(files, gate)
    return store


class Process:
    """Work that waits before each of its storage operations until it is advanced."""

    def __init__(self, files: Files, work: Callable[[Store], Any]) -> None:
        self._turn, self._waiting = threading.Semaphore(0), threading.Semaphore(0)
        self._kill = False
        self.killed = False
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None
        self._next = ""
        self._thread = threading.Thread(
            target=self._run, args=[work, open_store(files, self._gate)], daemon=True
        )
        self._thread.start()
        self._waiting.acquire()

    def _run(self, work: Callable[[Store], Any], store: Store) -> None:
        try:
            self.result = work(store)
        except BaseException as error:
            self.error = error
        self.done = True
        self._waiting.release()

    def _gate(self, operation: str) -> None:
        self._next = operation
        if not self._kill:
            self._waiting.release()
            self._turn.acquire()
        if self._kill:
            raise Killed

    def advance(self, operations: int) -> None:
        """Let it do so many operations, or what is left of them."""
        for _ in range(operations):
            if self.done:
                return
            self._turn.release()
            self._waiting.acquire()

    def advance_to(self, operation: str) -> None:
        """Let it do at least one operation, and more until one of this kind is the next."""
        self.advance(1)
        while not self.done and not self._next.startswith(operation):
            self.advance(1)

    def finish(self) -> Any:
        """Let it run to its end, and give what it gave."""
        while not self.done:
            self.advance(1)
        if self.error is not None:
            raise self.error
        return self.result

    def kill(self) -> None:
        """Let it end without another operation."""
        if not self.done:
            self._kill = self.killed = True
            self._turn.release()
            self._waiting.acquire()
        self._thread.join()
