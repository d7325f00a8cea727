"""Sort rows in bounded memory: larger inputs are sorted in pieces, spilled and merged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from ffq_spark.errors import CorruptPart
from ffq_spark.exchange.compute.merge import merge_sorted, row_order
from ffq_spark.exchange.compute.spill import Spilled

IN_MEMORY = 64 << 20
_BATCH_ROWS = 1 << 15


def sort_rows(
    batches: Iterable[pa.RecordBatch],
    by: Sequence[str],
    in_memory: int = IN_MEMORY,
    *,
    stable: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Sort rows in Spark's ascending order of some columns.

    `stable` keeps the order of equal rows, which takes longer unless the rows are few sorted runs.

    >>> rows = [pa.record_batch({"k": [3, 1]}), pa.record_batch({"k": [None, 2]})]
    >>> [batch["k"].to_pylist() for batch in sort_rows(rows, ["k"])]
    [[None, 1, 2, 3]]
    """
    runs: list[Spilled] = []
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size > in_memory:
            runs.append(Spilled.of_batches(_sorted(held, by, stable, _BATCH_ROWS // 4)))
            held, size = [], 0
    if not runs:
        yield from _sorted(held, by, stable)
    else:
        spilled = [iter(pa.ipc.open_stream(run.data)) for run in runs]
        yield from merge_sorted([*spilled, _sorted(held, by, stable)], by)


def _sorted(
    batches: list[pa.RecordBatch], by: Sequence[str], stable: bool, rows: int = _BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    if not batches:
        return
    joined = pa.concat_batches(batches)
    batches.clear()
    order = row_order(joined, by, stable=stable)
    for start in range(0, len(order), rows):
        yield joined.take(pa.array(order[start : start + rows]))


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
