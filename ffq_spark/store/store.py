"""The store of one exchange: what the product asks of storage, with errors that name the file."""

from __future__ import annotations

import contextlib
import secrets
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pyarrow as pa

from ffq_spark.errors import FfqError, StoreFailed, StoreUnsafe
from ffq_spark.format import paths
from ffq_spark.store.backend import Backend, Directory, Entry, Skip
from ffq_spark.store.credits import Credits
from ffq_spark.store.local import LocalBackend
from ffq_spark.store.location import open_backend
from ffq_spark.store.prefetch import Buffers, ReadTotals, Request, fetch_ahead, fetch_in_turn
from ffq_spark.store.redaction import scrub
from ffq_spark.store.retry import GaveUp
from ffq_spark.store.uploads import ParallelUploads, SerialUploads

__all__ = ["Directory", "Entry", "Store"]

UNSAFE = "unsafe"
_READERS = 16

Read = TypeVar("Read")


class Store:
    """Files below one root. Pickles into Spark tasks; clients are made where they are used.

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
        """Whether a request is a system call, and not a round trip."""
        return isinstance(self._backend, LocalBackend)

    def url(self, path: str = "") -> str:
        """A file's full name, for messages; it never holds a secret."""
        return self._backend.url(path)

    def read(self, path: str) -> bytes:
        """A whole file; FileNotFoundError if there is none."""
        try:
            return bytes(self._backend.read(path))
        except FileNotFoundError:
            raise
        except Exception as error:
            raise self._failed("read", path, error) from self._cause(error)

    def read_optional(self, path: str) -> bytes | None:
        """A whole file, or None if there is none."""
        try:
            return self.read(path)
        except FileNotFoundError:
            return None

    def read_many(self, paths: Sequence[str]) -> list[bytes | None]:
        """Whole files in the order of their paths, None where there is none."""
        return self._of_each(self.read_optional, paths)

    def read_large(self, paths: Sequence[str]) -> list[pa.Buffer | None]:
        """The same of files that may be large, in memory that need not be new."""
        return self._of_each(self._read_buffer, paths)

    def _read_buffer(self, path: str) -> pa.Buffer | None:
        try:
            return self.read_range(path, 0, None)
        except FileNotFoundError:
            return None

    def _of_each(self, read: Callable[[str], Read], paths: Sequence[str]) -> list[Read]:
        if len(paths) < 2 or self.is_local:
            return [read(path) for path in paths]
        with ThreadPoolExecutor(min(_READERS, len(paths))) as pool:
            return list(pool.map(read, paths))

    def read_range(self, path: str, start: int, length: int | None) -> pa.Buffer:
        """Bytes of a file; fewer than asked for if it ends before."""
        try:
            return pa.py_buffer(self._backend.read(path, start, length))
        except FileNotFoundError:
            raise
        except Exception as error:
            raise self._failed("read", path, error) from self._cause(error)

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
        """Create a file that nobody has created: True if it now holds exactly these bytes.

        A put that was retried inside a client loses to itself, so a lost race is settled by
        comparing what is there.
        """
        try:
            if self.create_once_by == UNSAFE:
                return self._create_unsafely(path, data)
            self._backend.create(path, data)
            return True
        except FileExistsError:
            return self.read_optional(path) == data
        except FfqError:
            raise
        except Exception as error:
            raise self._failed("create", path, error) from self._cause(error)

    def _create_unsafely(self, path: str, data: bytes) -> bool:
        there = self.read_optional(path)
        if there is None:
            self._backend.write(path, [memoryview(data)])
        return there is None or there == data

    @property
    def create_once_by(self) -> str:
        """How this store creates once: `link`, `conditional-put`, or `unsafe` if it was allowed."""
        if self._create_once_by is None:
            self._create_once_by = self._backend.create_once
            if self.unsafe_commit:
                self._create_once_by = self._probe_tolerantly()
        if not self._create_once_by:
            raise StoreUnsafe(f"{self.url()} cannot create a file only if it does not exist")
        return self._create_once_by

    def probe_create_once(self) -> str:
        """Try create-once for real: some servers accept the condition and ignore it."""
        try:
            if self.create_once_by == UNSAFE:
                return UNSAFE
            honoured = self._probe()
        except FfqError:
            raise
        except Exception as error:
            raise self._failed("create", paths.PROBES, error) from self._cause(error)
        if not honoured:
            raise StoreUnsafe(f"{self.url()} ignores the condition of a create-once write")
        return self.create_once_by

    def _probe_tolerantly(self) -> str:
        try:
            return self._backend.create_once if self._probe() else UNSAFE
        except OSError:
            return UNSAFE

    def _probe(self) -> bool:
        path = f"{paths.PROBES}/{secrets.token_hex(8)}"
        try:
            # Nobody else has this name: a put that was retried has met itself.
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
            self._backend.delete(path)

    def write(self, path: str, pieces: Iterable[Any]) -> None:
        """Write a file that only its owner writes, piece by piece."""
        try:
            self._backend.write(path, (memoryview(piece) for piece in pieces))
        except FfqError:
            raise
        except Exception as error:
            raise self._failed("write", path, error) from self._cause(error)

    def replace(self, path: str, data: bytes) -> None:
        """Write a small file that changes: its readers see the old one or the new one, whole."""
        try:
            self._backend.replace(path, data)
        except Exception as error:
            raise self._failed("write", path, error) from self._cause(error)

    def uploads(self) -> SerialUploads | ParallelUploads:
        """A context to write many files in; all are there when it is left."""
        return SerialUploads(self.write) if self.is_local else ParallelUploads(self.write)

    def delete(self, path: str) -> None:
        """Delete a file; one that is gone already is fine."""
        try:
            self._backend.delete(path)
        except Exception as error:
            raise self._failed("delete", path, error) from self._cause(error)

    def delete_many(self, paths: Sequence[str]) -> None:
        """Delete files in bulk; those that are gone already are fine."""
        try:
            self._backend.delete_many(paths)
        except Exception as error:
            raise self._failed("delete", paths[0] if paths else "", error) from self._cause(error)

    def delete_directories(self, paths: Sequence[str]) -> None:
        """Delete directories that have become empty, children first; others stay."""
        try:
            self._backend.delete_directories(paths)
        except Exception as error:
            raise self._failed("delete", paths[0] if paths else "", error) from self._cause(error)

    def tree(self, path: str, skip: Skip = lambda _: False) -> Iterator[Directory]:
        """All directories below one and itself, children first, as they are met.

        Memory does not grow with their number, and each may be deleted once it was given.

        >>> store = Store("memory://doc-tree")
        >>> store.write("d/1/x", [b"rows"])
        >>> list(store.tree("d"))
        [Directory(path='d/1', files=[('d/1/x', 4)])]
        """
        try:
            yield from self._backend.tree(path, skip)
        except Exception as error:
            raise self._failed("list", path, error) from self._cause(error)

    def walk(self, path: str) -> list[tuple[str, int]]:
        """All files below a directory, with their sizes."""
        return sorted(file for directory in self.tree(path) for file in directory.files)

    def clock_ms(self) -> int | None:
        """Tell the time by the storage's own clock, which dates files; None if it is not known."""
        try:
            return self._backend.clock_ms()
        except Exception as error:
            raise self._failed("read", "", error) from self._cause(error)

    def remove_leftovers(
        self, before_ms: int, *, dry_run: bool, spared: Skip = lambda _: False
    ) -> int:
        """Remove temporary files and unfinished uploads older than a moment; how many.

        Uploads whose path is `spared` stay.
        """
        try:
            return self._backend.remove_leftovers(before_ms, spared, dry_run)
        except Exception as error:
            raise self._failed("list", "", error) from self._cause(error)

    def scan(self, path: str) -> Iterator[Entry]:
        """The children of a directory as they are met, in any order; none if there is none."""
        try:
            yield from self._backend.scan(path)
        except Exception as error:
            raise self._failed("list", path, error) from self._cause(error)

    def list(self, path: str) -> list[Entry]:
        """The children of a directory, by name; none if it does not exist."""
        return sorted(self.scan(path), key=lambda entry: entry.name)

    def _failed(self, verb: str, path: str, error: Exception) -> StoreFailed:
        told = str(error) if isinstance(error, GaveUp) else f"{type(error).__name__}: {error}"
        return StoreFailed(f"cannot {verb}: {scrub(told, self._options)}", path=self.url(path))

    def _cause(self, error: Exception) -> Exception | None:
        """The error, if a traceback that shows it and all before it shows no secret."""
        told = "".join(traceback.format_exception(error))
        return error if scrub(told, self._options) == told else None
