"""Deletion of directories in pages of bounded size, counted in a report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ffq_spark.exchange.attempts import stored
from ffq_spark.format import paths
from ffq_spark.store import Directory, Store

_PAGE_FILES = 1000
_MAX_PROBLEMS = 1000
# An attempt without its index counts as unfinished. Deleting the index last lets the next run
# recognise, and finish, an attempt whose deletion was interrupted.
_ORDER = {paths.INDEX_BIN: 1, paths.INDEX_JSON: 2}


@dataclass
class GcReport:
    """Counts of what one gc run deleted, or would delete, and the problems that it met.

    Data that belongs to an unreadable record or index is kept and listed in `problems`.
    """

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
        """Add a problem to the report; after the first 1,000, only count it."""
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(problem)
        else:
            self.more_problems += 1


def delete_directories(
    store: Store, directories: Iterable[Directory], report: GcReport
) -> Iterator[str]:
    """Delete directories with their files and yield each attempt directory once it is deleted.

    A dry run deletes nothing, but counts and yields the same.

    >>> store, report = Store("memory://doc-deletion"), GcReport(dry_run=False)
    >>> store.write("shuffle/7/0/0/1/part-0.ipc", [b"rows"])
    >>> list(delete_directories(store, store.tree("shuffle/7"), report)), report.files
    (['shuffle/7/0/0/1'], 1)
    """
    last_attempt = None
    for page in _pages(directories):
        files = [file for directory in page for file in sorted(directory.files, key=_order)]
        if not report.dry_run:
            store.delete_many([path for path, _ in files])
            store.delete_directories([directory.path for directory in page])
        report.files += len(files)
        report.bytes += sum(size for _, size in files)
        for directory in page:
            attempt = stored.attempt_directory(directory.files[0][0]) if directory.files else None
            # An object store may list one directory in several pieces.
            if attempt is not None and attempt != last_attempt:
                last_attempt = attempt
                report.attempts += 1
                yield attempt


def delete_file(store: Store, path: str, size: int, report: GcReport) -> None:
    """Delete one file that belongs to no attempt; its directory stays."""
    if not report.dry_run:
        store.delete_many([path])
    report.files += 1
    report.bytes += size


def _pages(directories: Iterable[Directory]) -> Iterator[list[Directory]]:
    """Group directories into pages of at most 1,000 files, or of one larger directory."""
    page: list[Directory] = []
    files = 0
    for directory in directories:
        if page and files + len(directory.files) > _PAGE_FILES:
            yield page
            page, files = [], 0
        page.append(directory)
        files += len(directory.files)
    if page:
        yield page


def _order(file: tuple[str, int]) -> int:
    return _ORDER.get(file[0].rpartition("/")[2], 0)
