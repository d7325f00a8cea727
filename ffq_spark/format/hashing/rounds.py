"""The order in which rows of unequal length are hashed side by side."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ffq_spark.format.hashing.words import Positions

# One numpy round costs about as much as this many rows done in plain Python.
_FEW_ROWS = 48


class Rounds(NamedTuple):
    """Rows by ascending length, so that the rows still active are always the last ones.

    Attributes:
        order: the rows, shortest first.
        firsts: for each round, the first place in `order` that is still active.
        long_from: the first place with words left over after all rounds.
    """

    order: Positions
    firsts: list[int]
    long_from: int


def plan_rounds(counts: NDArray[Any]) -> Rounds:
    """Plan side-by-side rounds while many rows are active; a few long rows stay over.

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
    # numpy sorts 16-bit numbers by radix.
    narrow = counts.astype(np.uint16) if longest <= np.iinfo(np.uint16).max else counts
    return np.argsort(narrow, kind="stable")
