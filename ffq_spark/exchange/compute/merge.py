"""Merge sorted runs of batches, holding one or two batches of each run in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ffq_spark.exchange.compute.row_order import row_order


def merge_sorted(
    runs: Sequence[Iterator[pa.RecordBatch]], by: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Merge runs that are each sorted; equal rows keep the order of the runs.

    Each round yields the rows that no later row can precede: those up to the smallest of the last
    rows held.

    >>> def run(*values):
    ...     return iter([pa.record_batch({"k": [value]}) for value in values])
    >>> [b["k"].to_pylist() for b in merge_sorted([run(1, 4), run(2, 3)], ["k"])]
    [[1], [2], [3], [4]]
    """
    heads = [_Head(run) for run in runs]
    while len(live := [head for head in heads if head.fill()]) > 1:
        counts, order = _ready([head.rows.select(by) for head in live], by)
        ready = [head.take(count) for head, count in zip(live, counts, strict=True) if count]
        yield ready[0] if len(ready) == 1 else pa.concat_batches(ready).take(pa.array(order))
    for head in live:
        while head.fill():
            yield head.take(head.rows.num_rows)


class _Head:
    """The next rows of a run: at least half a batch, except at the run's end.

    If one run held only a few rows, each round could yield only a few rows of all runs.
    """

    def __init__(self, run: Iterator[pa.RecordBatch]) -> None:
        self._run = run
        self._full = 0
        self.rows: Any = None

    def fill(self) -> bool:
        """Read the next batch if few rows are held; return False at the end of the run."""
        while (held := self.rows.num_rows if self.rows else 0) * 2 <= self._full:
            batch = next((batch for batch in self._run if batch.num_rows), None)
            if batch is None:
                return held > 0
            self.rows = pa.concat_batches([self.rows, batch]) if held else batch
            self._full = batch.num_rows
        return True

    def take(self, count: int) -> pa.RecordBatch:
        """Remove the first rows and return them."""
        taken = self.rows.slice(0, count)
        self.rows = self.rows.slice(count)
        return taken


def _ready(
    heads: Sequence[pa.RecordBatch], by: Sequence[str]
) -> tuple[list[int], NDArray[np.int64]]:
    """Count for each head the rows up to the smallest of all heads' last rows, and order them.

    The order numbers these rows alone, those of the first head first.
    """
    lengths = np.array([head.num_rows for head in heads])
    ends = np.cumsum(lengths)
    order = row_order(pa.concat_batches(heads), by)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    ready = order[: place[ends - 1].min() + 1]
    owners = np.repeat(np.arange(len(heads)), lengths)[ready]
    counts = np.bincount(owners, minlength=len(heads))
    # The ready rows of a head are its first ones, so the others only shift those of later heads.
    left_before = (ends - lengths) - (np.cumsum(counts) - counts)
    return counts.tolist(), ready - left_before[owners]
