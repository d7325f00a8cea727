"""The operations that a store needs from storage. Paths are relative to the exchange's root."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import pyarrow as pa

Skip = Callable[[str], bool]
"""Tells whether to skip a directory. It must then skip all directories below it, too."""


@dataclass(frozen=True)
class Entry:
    """A child of a directory."""

    name: str
    is_dir: bool
    size: int


class Directory(NamedTuple):
    """A directory and the paths and sizes of its own files, without those of its children."""

    path: str
    files: list[tuple[str, int]]


class Leftover(NamedTuple):
    """What an interrupted write leaves: a temporary file, or an upload of a path by its id."""

    path: str
    upload: str = ""


class Backend(Protocol):
    """A local directory or an object store. Missing files raise FileNotFoundError."""

    create_once: str
    """How a file is created only if it does not exist; empty if that is impossible."""

    def url(self, path: str) -> str:
        """Return the URL or local path of a file, for messages."""

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes | pa.Buffer:
        """Read a whole file, or the bytes of a range that the file has."""

    def create(self, path: str, data: bytes) -> None:
        """Create the whole file atomically, or raise FileExistsError if it exists.

        Raises NotImplementedError if storage answers that it cannot do this.
        """

    def write(self, path: str, pieces: Iterable[memoryview]) -> None:
        """Write a file from pieces; replace it if it exists."""

    def replace(self, path: str, data: bytes) -> None:
        """Replace the file atomically: readers see the old or the new one, whole."""

    def delete(self, path: str) -> None:
        """Delete a file if it exists."""

    def delete_many(self, paths: Sequence[str]) -> None:
        """Delete files, as many per request as the store allows."""

    def delete_directories(self, paths: Iterable[str]) -> None:
        """Delete those of the directories that are empty; do nothing on an object store."""

    def tree(self, path: str, skip: Skip) -> Iterator[Directory]:
        """Yield a directory and all directories below it, children first, a few at a time.

        An object store may yield a directory in several pieces, and has no empty directories.
        """

    def leftovers(self, before_ms: int) -> Iterator[Leftover]:
        """Yield temporary files and unfinished uploads older than a moment."""

    def delete_leftover(self, leftover: Leftover) -> None:
        """Delete a temporary file or abort an upload, if it still exists."""

    def clock_ms(self) -> int | None:
        """Return the time of the clock that dates files and uploads; None if unknown."""

    def scan(self, path: str) -> Iterator[Entry]:
        """Yield a directory's children in any order; nothing if it does not exist."""
