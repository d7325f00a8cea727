"""Sort rows in bounded memory: larger inputs are sorted in pieces, spilled and merged.

The pieces are runs on local disk. When a level has `FAN_IN` runs, they are merged to a run of
the next level, so that no merge holds batches of many more runs, whatever the input's size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from ffq_spark.errors import CorruptPart
from ffq_spark.exchange.compute.batch_sizes import batch_cost, concat, split_within
from ffq_spark.exchange.compute.merge import merge_sorted
from ffq_spark.exchange.compute.row_order import row_order
from ffq_spark.exchange.compute.spill import Spilled

IN_MEMORY = 64 << 20
FAN_IN = 32
_BATCH_ROWS = 1 << 15
# Smaller batches of runs would take longer to handle than to merge.
_LEAST_BATCH_BYTES = 4 << 10


def sort_rows(
    batches: Iterable[pa.RecordBatch],
    by: Sequence[str],
    in_memory: int = IN_MEMORY,
) -> Iterator[pa.RecordBatch]:
    """Sort rows in Spark's ascending order of some columns; equal rows keep their order.

    At most about four times `in_memory` bytes are held.

    >>> rows = [pa.record_batch({"k": [3, 1]}), pa.record_batch({"k": [None, 2]})]
    >>> [batch["k"].to_pylist() for batch in sort_rows(rows, ["k"])]
    [[None, 1, 2, 3]]
    """
    runs = _Runs(by, in_memory)
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        size += batch_cost(batch)
        if size > in_memory:
            runs.add(_sorted(held, by))
            size = 0
    yield from runs.merge(_sorted(held, by))


class _Runs:
    """Sorted runs on local disk, with fewer than `fan_in` of each level.

    A merge of one level holds up to two batches of each run: half of `in_memory` bytes.
    """

    def __init__(self, by: Sequence[str], in_memory: int) -> None:
        self._by = by
        self._fan_in = min(max(in_memory // (4 * _LEAST_BATCH_BYTES), 2), FAN_IN)
        self._batch_bytes = max(in_memory // (4 * self._fan_in), _LEAST_BATCH_BYTES)
        self._levels: list[list[Spilled]] = []

    def add(self, rows: Iterator[pa.RecordBatch], level: int = 0) -> None:
        """Spill the run that follows all others, and merge its level if that is full."""
        if level == len(self._levels):
            self._levels.append([])
        runs = self._levels[level]
        runs.append(
            Spilled.of_batches(
                piece for batch in rows for piece in split_within(batch, self._batch_bytes)
            )
        )
        if len(runs) == self._fan_in:
            self.add(merge_sorted([run.batches() for run in runs], self._by), level + 1)
            runs.clear()

    def merge(self, last: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Merge all runs, and the last one, which is in memory."""
        if not self._levels:
            return last
        # Runs of a higher level came first.
        spilled = [run.batches() for runs in reversed(self._levels) for run in runs]
        return merge_sorted([*spilled, last], self._by)


def _sorted(batches: list[pa.RecordBatch], by: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Sort the rows of a list of batches, which is emptied."""
    if not batches:
        return
    joined = concat(batches)
    batches.clear()
    order = row_order(joined, by)
    for start in range(0, len(order), _BATCH_ROWS):
        yield joined.take(pa.array(order[start : start + _BATCH_ROWS]))


def check_sorted(
    batches: Iterable[pa.RecordBatch], by: Sequence[str], path: str
) -> Iterator[pa.RecordBatch]:
    """Return the batches of a part unchanged; raise CorruptPart if they are not sorted."""
    last: pa.RecordBatch | None = None
    for batch in batches:
        if by and batch.num_rows:
            rows = batch.select(list(by))
            joined = rows if last is None else pa.concat_batches([last, rows])
            order = row_order(joined, by)
            if np.any(order[1:] < order[:-1]):
                raise CorruptPart(f"its rows are not sorted by {', '.join(by)}", path=path)
            last = rows.slice(rows.num_rows - 1)
        yield batch
