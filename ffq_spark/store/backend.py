"""What the store needs of a place to keep files. Paths are relative to the exchange's root."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import pyarrow as pa

Skip = Callable[[str], bool]
"""Whether a directory is left out; one that is must be left out at any depth below, too."""


@dataclass(frozen=True)
class Entry:
    """A child of a directory."""

    name: str
    is_dir: bool
    size: int


class Directory(NamedTuple):
    """A directory and the files that lie in it itself: their paths and sizes."""

    path: str
    files: list[tuple[str, int]]


class Backend(Protocol):
    """A local directory or an object store. Missing files raise FileNotFoundError."""

    create_once: str
    """How a file is created only if it does not exist; empty if that is impossible."""

    def url(self, path: str) -> str: ...

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes | pa.Buffer:
        """A whole file, or of a range what there is of it."""

    def create(self, path: str, data: bytes) -> None:
        """Create the whole file or raise FileExistsError: never half a file, never over one."""

    def write(self, path: str, pieces: Iterable[memoryview]) -> None: ...

    def replace(self, path: str, data: bytes) -> None:
        """Write the whole file, over one that is there: readers see either, never a half."""

    def delete(self, path: str) -> None:
        """Delete a file; one that is gone already is fine."""

    def delete_many(self, paths: Sequence[str]) -> None:
        """Delete files, as many in one request as the store takes."""

    def delete_directories(self, paths: Iterable[str]) -> None:
        """Delete directories that are empty; nothing on an object store."""

    def tree(self, path: str, skip: Skip) -> Iterator[Directory]:
        """All directories below one and itself, children first, a few at a time.

        An object store may give a directory in several pieces, and has none without files.
        """

    def remove_leftovers(self, before_ms: int, spared: Skip, dry_run: bool) -> int:
        """Remove temporary files and unfinished uploads older than a moment; how many.

        Uploads whose path is `spared` stay.
        """

    def clock_ms(self) -> int | None:
        """Tell the time by the clock that dates files and uploads; None if that is not known."""

    def scan(self, path: str) -> Iterator[Entry]:
        """The children of a directory in any order, a few at a time; none if there is none."""
