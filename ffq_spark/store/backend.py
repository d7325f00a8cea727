"""What the store needs of a place to keep files. Paths are relative to the exchange's root."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Entry:
    """A child of a directory."""

    name: str
    is_dir: bool
    size: int


class Backend(Protocol):
    """A local directory or an object store. Missing files raise FileNotFoundError."""

    create_once: str
    """How a file is created only if it does not exist; empty if that is impossible."""

    def url(self, path: str) -> str: ...

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes: ...

    def create(self, path: str, data: bytes) -> None:
        """Create the whole file or raise FileExistsError: never half a file, never over one."""

    def write(self, path: str, pieces: Iterable[memoryview]) -> None: ...

    def replace(self, path: str, data: bytes) -> None:
        """Write the whole file, over one that is there: readers see either, never a half."""

    def delete(self, path: str) -> None:
        """Delete a file; one that is gone already is fine."""

    def delete_many(self, paths: Sequence[str]) -> None:
        """Delete files, as many in one request as the store takes."""

    def delete_directory(self, path: str) -> None:
        """Delete what a directory is beside its files; nothing on an object store."""

    def walk(self, path: str) -> list[tuple[str, int]]:
        """All files below a directory with their sizes, relative to the root."""

    def remove_leftovers(self, path: str, before_ms: int, dry_run: bool) -> int:
        """Remove temporary files and unfinished uploads older than a moment; how many."""

    def list(self, path: str) -> list[Entry]:
        """The children of a directory; none if it does not exist."""
