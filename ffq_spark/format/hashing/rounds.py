"""Plan how to hash rows of unequal length side by side, in rounds."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ffq_spark.format.hashing.words import Positions

# One numpy round costs about as much as hashing this many rows in plain Python.
_FEW_ROWS = 48


class Rounds(NamedTuple):
    """Rows by ascending length, so that the rows that are still active are always the last ones.

    Attributes:
        order: the row numbers, shortest row first.
        firsts: for each round, the first position in `order` that is still active.
        long_from: the first position in `order` whose row has words left after all rounds.
    """

    order: Positions
    firsts: list[int]
    long_from: int


def plan_rounds(counts: NDArray[Any]) -> Rounds:
    """Plan rounds for as long as many rows are active; a few long rows keep remaining words.

    >>> plan = plan_rounds(np.array([1, 3] + [2] * 60))
    >>> plan.firsts, plan.order[plan.long_from :].tolist()
    ([0, 1], [1])
    """
    order = _ascending(counts)
    ordered = counts[order]
    common = int(ordered[-_FEW_ROWS - 1]) if len(ordered) > _FEW_ROWS else 0
    firsts = np.searchsorted(ordered, np.arange(common), side="right")
    long_from = int(np.searchsorted(ordered, common, side="right"))
    return Rounds(order, firsts.tolist(), long_from)


def _ascending(counts: NDArray[Any]) -> Positions:
    longest = counts.max()
    if longest == counts.min():
        return np.arange(len(counts))
    # numpy uses the faster radix sort for 16-bit numbers.
    narrow = counts.astype(np.uint16) if longest <= np.iinfo(np.uint16).max else counts
    return np.argsort(narrow, kind="stable")
