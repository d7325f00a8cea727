"""Removing directories as they are met: a page of files at a time, counted, never listed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ffq_spark.exchange.attempts import stored
from ffq_spark.format import paths
from ffq_spark.store import Directory, Store

_PAGE = 1000
_PROBLEMS = 1000
# An attempt without its index is taken for one under way: the index goes last, so that whoever
# comes after a crash finishes the work.
_ORDER = {paths.INDEX_BIN: 1, paths.INDEX_JSON: 2}

OnRemoved = Callable[[str], None]


@dataclass
class GcReport:
    """How much was removed, or would be; what could not be read is listed and left alone."""

    dry_run: bool
    attempts: int = 0
    fenced: list[int] = field(default_factory=list)
    expired: list[int] = field(default_factory=list)
    files: int = 0
    bytes: int = 0
    leftovers: int = 0
    problems: list[str] = field(default_factory=list)
    more_problems: int = 0

    def add_problem(self, problem: str) -> None:
        """Keep what went wrong; of very many, only the first."""
        if len(self.problems) < _PROBLEMS:
            self.problems.append(problem)
        else:
            self.more_problems += 1


class Removal:
    """Deletes what it is given, and tells the names of attempt directories once they are gone."""

    def __init__(self, store: Store, report: GcReport, on_removed: OnRemoved | None) -> None:
        self._store = store
        self._report = report
        self._on_removed = on_removed
        self._files: list[tuple[str, int]] = []
        self._directories: list[str] = []
        self._last_attempt = ""

    def remove(self, directories: Iterable[Directory]) -> None:
        """Remove the files of directories, and what a file system keeps of the directories."""
        try:
            for directory in directories:
                if len(self._files) + len(directory.files) > _PAGE:
                    self._flush()
                self._files += sorted(directory.files, key=_order)
                self._directories.append(directory.path)
            self._flush()
        finally:
            # What one query could not remove is no concern of the next.
            self._files, self._directories = [], []

    def remove_file(self, path: str, size: int) -> None:
        """Remove one file that is no attempt's; its directory stays."""
        self._files.append((path, size))
        self._flush()

    def _flush(self) -> None:
        files, directories = self._files, self._directories
        self._files, self._directories = [], []
        if not self._report.dry_run:
            self._store.delete_many([path for path, _ in files])
            self._store.delete_directories(directories)
        self._report.files += len(files)
        self._report.bytes += sum(size for _, size in files)
        for path, _ in files:
            self._count(path)

    def _count(self, path: str) -> None:
        attempt = stored.attempt_directory(path)
        if attempt is not None and attempt != self._last_attempt:
            self._last_attempt = attempt
            self._report.attempts += 1
            if self._on_removed is not None:
                self._on_removed(attempt)


def _order(file: tuple[str, int]) -> int:
    return _ORDER.get(file[0].rpartition("/")[2], 0)
