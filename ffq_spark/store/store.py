"""The store of one exchange: create, read, list and delete files, with errors that name them."""

from __future__ import annotations

import contextlib
import logging
import secrets
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pyarrow as pa

from ffq_spark.errors import FfqError, StoreFailed, StoreUnsafe
from ffq_spark.format import paths
from ffq_spark.store.backend import Backend, Directory, Entry, Leftover, Skip
from ffq_spark.store.credits import Credits
from ffq_spark.store.failures import describe
from ffq_spark.store.local import LocalBackend
from ffq_spark.store.location import open_backend
from ffq_spark.store.prefetch import Buffers, ReadTotals, Request, fetch_ahead, fetch_in_turn
from ffq_spark.store.redaction import scrub
from ffq_spark.store.uploads import ParallelUploads, SerialUploads

__all__ = ["Directory", "Entry", "Leftover", "Store"]

logger = logging.getLogger(__name__)

UNSAFE = "unsafe"
_READERS = 16

Item = TypeVar("Item")
Read = TypeVar("Read")


class Store:
    """The files below one root. It pickles into Spark tasks; each process makes its own client.

    >>> store = Store("memory://doc-store")
    >>> store.create_once("a.json", b"1"), store.create_once("a.json", b"2"), store.read("a.json")
    (True, False, b'1')
    """

    def __init__(
        self,
        root: str,
        options: Mapping[str, Any] | None = None,
        *,
        unsafe_commit: bool = False,
        confined: bool = False,
        backend: Backend | None = None,
    ) -> None:
        """Open the store of a root; `backend` replaces the backend that the root's URL selects."""
        self.root = root
        self.unsafe_commit = unsafe_commit
        self._options = dict(options or {})
        self._backend = backend or open_backend(root, self._options, confined=confined)
        self._create_once_by: str | None = None

    def __repr__(self) -> str:
        return f"Store({self.root!r})"

    @property
    def is_local(self) -> bool:
        """Whether a request is a system call rather than a round trip."""
        return isinstance(self._backend, LocalBackend)

    def url(self, path: str = "") -> str:
        """Return a file's full name for messages; it never holds a secret."""
        return self._backend.url(path)

    def read(self, path: str) -> bytes:
        """Read a whole file; raise FileNotFoundError if it does not exist."""
        with self._storing("read", path, FileNotFoundError):
            return bytes(self._backend.read(path))

    def read_optional(self, path: str) -> bytes | None:
        """Read a whole file, or return None if it does not exist."""
        try:
            return self.read(path)
        except FileNotFoundError:
            return None

    def read_many(self, paths: Sequence[str]) -> list[bytes | None]:
        """Read whole files in the order of their paths; None for missing ones."""
        return self.read_each(self.read_optional, paths)

    def read_large(self, paths: Sequence[str]) -> list[pa.Buffer | None]:
        """Read whole files as Arrow buffers from the memory pool; None for missing ones."""
        return self.read_each(self._read_buffer, paths)

    def _read_buffer(self, path: str) -> pa.Buffer | None:
        try:
            return self.read_range(path, 0, None)
        except FileNotFoundError:
            return None

    def read_each(self, read: Callable[[Item], Read], items: Sequence[Item]) -> list[Read]:
        """Call `read` for each item, several at once on remote storage; keep the items' order."""
        if len(items) < 2 or self.is_local:
            return [read(item) for item in items]
        with ThreadPoolExecutor(min(_READERS, len(items))) as pool:
            return list(pool.map(read, items))

    def read_range(self, path: str, start: int, length: int | None) -> pa.Buffer:
        """Read a byte range of a file, or less if the file ends before."""
        with self._storing("read", path, FileNotFoundError):
            return pa.py_buffer(self._backend.read(path, start, length))

    def fetch(
        self, requests: Iterable[Request], credits: Credits, totals: ReadTotals
    ) -> Iterator[tuple[Request, Buffers]]:
        """Fetch byte ranges in the order of their requests, ahead of their use from a remote store.

        The answer to a request of a file that does not exist is None.
        """
        if self.is_local:
            return fetch_in_turn(self._read_ranges, requests, totals)
        return fetch_ahead(self._read_ranges, requests, totals, credits)

    def _read_ranges(self, path: str, spans: Sequence[tuple[int, int]]) -> Buffers:
        try:
            return [self.read_range(path, start, length) for start, length in spans]
        except FileNotFoundError:
            return None

    def create_once(self, path: str, data: bytes) -> bool:
        """Create a file unless it exists, and return whether it now holds exactly these bytes.

        A put that a client retried may fail because its first try succeeded. The file's content
        decides whether a lost race was lost to another writer.
        """
        try:
            with self._storing("create", path, FileExistsError, FfqError):
                if self.create_once_by == UNSAFE:
                    return self._create_unsafely(path, data)
                self._backend.create(path, data)
                return True
        except FileExistsError:
            return self.read_optional(path) == data

    def _create_unsafely(self, path: str, data: bytes) -> bool:
        existing = self.read_optional(path)
        if existing is None:
            self._backend.write(path, [memoryview(data)])
        return existing is None or existing == data

    @property
    def create_once_by(self) -> str:
        """The way to create a file once: `link`, `conditional-put`, or `unsafe` if allowed."""
        if self._create_once_by is None:
            way = self._backend.create_once
            # A store is unsafe only if it says so: a probe that fails otherwise is an error.
            is_unsafe = self.unsafe_commit and not (way and self._probe())
            self._create_once_by = UNSAFE if is_unsafe else way
        if not self._create_once_by:
            raise StoreUnsafe(f"{self.url()} cannot create a file only if it does not exist")
        return self._create_once_by

    def probe_create_once(self) -> str:
        """Test create-once on the store: some servers accept the condition and ignore it."""
        with self._storing("create", paths.PROBES, FfqError):
            if self.create_once_by == UNSAFE:
                return UNSAFE
            honoured = self._probe()
        if not honoured:
            message = "ignores or refuses the condition of a create-once write"
            raise StoreUnsafe(f"{self.url()} {message}")
        return self.create_once_by

    def _probe(self) -> bool:
        """Return whether the store creates a file only if it does not exist."""
        path = f"{paths.PROBES}/{secrets.token_hex(8)}"
        try:
            # The name is random, so a file that exists comes from a retry of this very put.
            with contextlib.suppress(FileExistsError):
                self._backend.create(path, b"first")
            try:
                self._backend.create(path, b"second")
            except FileExistsError:
                return self._backend.read(path) == b"first"
            return False
        except NotImplementedError:
            return False
        finally:
            # A writer does not need the right to delete.
            try:
                self._backend.delete(path)
            except Exception as error:
                message = scrub(f"{type(error).__name__}: {error}", self._options)
                logger.info("the probe %s stays: %s", self.url(path), message)

    def write(self, path: str, pieces: Iterable[Any]) -> None:
        """Write a file piece by piece. Only one process may write the path."""
        with self._storing("write", path, FfqError):
            self._backend.write(path, (memoryview(piece) for piece in pieces))

    def replace(self, path: str, data: bytes) -> None:
        """Replace a small file atomically: readers see the old or the new one, whole."""
        with self._storing("write", path):
            self._backend.replace(path, data)

    def uploads(self) -> SerialUploads | ParallelUploads:
        """Return a context manager that writes many files; on exit all of them are stored."""
        return SerialUploads(self.write) if self.is_local else ParallelUploads(self.write)

    def delete(self, path: str) -> None:
        """Delete a file if it exists."""
        with self._storing("delete", path):
            self._backend.delete(path)

    def delete_many(self, paths: Sequence[str]) -> None:
        """Delete files in bulk; missing files are ignored."""
        with self._storing("delete", paths[0] if paths else ""):
            self._backend.delete_many(paths)

    def delete_directories(self, paths: Sequence[str]) -> None:
        """Delete the directories that are empty, children first; keep the others."""
        with self._storing("delete", paths[0] if paths else ""):
            self._backend.delete_directories(paths)

    def tree(self, path: str, skip: Skip = lambda _: False) -> Iterator[Directory]:
        """Yield a directory and all directories below it, children first.

        Memory does not grow with their number, and a caller may delete each one it was given.

        >>> store = Store("memory://doc-tree")
        >>> store.write("d/1/x", [b"rows"])
        >>> list(store.tree("d"))
        [Directory(path='d/1', files=[('d/1/x', 4)])]
        """
        with self._storing("list", path):
            yield from self._backend.tree(path, skip)

    def walk(self, path: str) -> list[tuple[str, int]]:
        """List all files below a directory with their sizes, sorted by path."""
        return sorted(file for directory in self.tree(path) for file in directory.files)

    def clock_ms(self) -> int | None:
        """Return the time of the storage's own clock, which dates files; None if unknown."""
        with self._storing("read", ""):
            return self._backend.clock_ms()

    def leftovers(self, before_ms: int) -> Iterator[Leftover]:
        """Yield temporary files and unfinished uploads older than a moment."""
        with self._storing("list", ""):
            yield from self._backend.leftovers(before_ms)

    def delete_leftover(self, leftover: Leftover) -> None:
        """Delete a temporary file or abort an upload, if it still exists."""
        with self._storing("delete", leftover.path):
            self._backend.delete_leftover(leftover)

    def scan(self, path: str) -> Iterator[Entry]:
        """Yield a directory's children in any order; nothing if it does not exist."""
        with self._storing("list", path):
            yield from self._backend.scan(path)

    def list(self, path: str) -> list[Entry]:
        """List a directory's children by name; empty if it does not exist."""
        return sorted(self.scan(path), key=lambda entry: entry.name)

    @contextlib.contextmanager
    def _storing(self, verb: str, path: str, *expected: type[Exception]) -> Iterator[None]:
        """Turn all errors but the expected ones into StoreFailed, without secrets in its text."""
        try:
            yield
        except expected:
            raise
        except Exception as error:
            message = scrub(describe(verb, error), self._options)
            raise StoreFailed(message, path=self.url(path)) from self._cause(error)

    def _cause(self, error: Exception) -> Exception | None:
        """Return the error unless a traceback that shows it and its causes shows a secret."""
        trace = "".join(traceback.format_exception(error))
        return error if scrub(trace, self._options) == trace else None
