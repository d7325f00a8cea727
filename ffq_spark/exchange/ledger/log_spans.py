"""Spans of the step log: which steps one file holds, and which files hold a range of steps.

A log checkpoint holds 64 steps, or 512, 4,096, …: each size eight times the one before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ffq_spark.format import paths

FIRST_SIZE = 64
GROWTH = 8


class Span(NamedTuple):
    """Neighbouring steps in one file: a single step, or 64, 512, 4,096, … steps."""

    size: int
    last: int

    @property
    def first(self) -> int:
        return self.last - self.size + 1

    @property
    def path(self) -> str:
        """Path of the step's record, or of the log checkpoint."""
        size, last = self
        return paths.step(last) if size == 1 else paths.log_checkpoint(size, last)

    def smaller(self, first: int) -> Iterator[Span]:
        """Yield smaller spans that hold the same steps, from `first` on."""
        return cover(max(first, self.first), self.last, self.size - 1)


def cover(first: int, last: int, largest: int | None = None) -> Iterator[Span]:
    """Yield the fewest spans that hold these steps, at least half of each span being wanted.

    >>> [(span.first, span.last) for span in cover(63, 194)]
    [(63, 63), (64, 64), (65, 128), (129, 192), (193, 193), (194, 194)]
    >>> [(span.first, span.last) for span in cover(63, 5000)][:2]
    [(1, 4096), (4097, 4608)]
    """
    sizes = [1, *_sizes(last if largest is None else largest)]
    while first <= last:
        around = (Span(size, -(-first // size) * size) for size in reversed(sizes))
        # A span that ends after `last` may not exist yet.
        span = next(s for s in around if s.last <= last and s.size < 2 * (s.last - first + 1))
        yield span
        first = span.last + 1


def ending_at(last: int) -> list[Span]:
    """Return the spans of the log checkpoints that a step completes, smallest first.

    >>> [span.size for span in ending_at(8192)], ending_at(100)
    ([64, 512, 4096], [])
    """
    return [Span(size, last) for size in _sizes(last) if last % size == 0]


def _sizes(limit: int) -> Iterator[int]:
    size = FIRST_SIZE
    while size <= limit:
        yield size
        size *= GROWTH
