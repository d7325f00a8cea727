"""Merging sorted runs of batches in bounded memory: one batch of each run is held at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ffq_spark.format.ordering import sort_indices


def merge_sorted(
    runs: Sequence[Iterator[pa.RecordBatch]], by: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Batches in order, from runs that are each in order.

    Each round gives out the rows that no later row can precede: those below the smallest of the
    last rows in hand, and all in hand of the run that has this row.

    >>> def run(*values):
    ...     return iter([pa.record_batch({"k": [value]}) for value in values])
    >>> [b["k"].to_pylist() for b in merge_sorted([run(1, 4), run(2, 3)], ["k"])]
    [[1], [2], [3], [4]]
    """
    heads: list[Any] = [_advance(run) for run in runs]
    while len(live := [i for i, head in enumerate(heads) if head is not None]) > 1:
        lasts = pa.Table.from_batches([_last_row(heads[i]) for i in live])
        first = live[int(_order(lasts, by)[0])]
        bound = _last_row(heads[first])
        ready = []
        for i in live:
            count = heads[i].num_rows if i == first else _rows_below(heads[i], bound, by)
            if count:
                ready.append(heads[i].slice(0, count))
                heads[i] = heads[i].slice(count) if count < heads[i].num_rows else _advance(runs[i])
        joined = pa.concat_batches(ready)
        yield joined if len(ready) == 1 else joined.take(_order(joined, by))
    for i in live:
        while heads[i] is not None:
            yield heads[i]
            heads[i] = _advance(runs[i])


def _advance(run: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    return next((batch for batch in run if batch.num_rows), None)


def _last_row(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.slice(batch.num_rows - 1)


def _order(rows: pa.RecordBatch | pa.Table, by: Sequence[str]) -> NDArray[np.uint64]:
    columns = [rows.column(name) for name in by]
    flat = [c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in columns]
    order: NDArray[np.uint64] = sort_indices(flat).to_numpy()
    return order


def _rows_below(batch: pa.RecordBatch, bound: pa.RecordBatch, by: Sequence[str]) -> int:
    """How many rows of a sorted batch are below the bound."""
    low, high = 0, batch.num_rows
    while low < high:
        middle = (low + high) // 2
        pair = pa.concat_batches([bound.select(by), batch.slice(middle, 1).select(by)])
        # The sort is stable, so only a row below the bound moves in front of it.
        if _order(pair, by)[0] == 1:
            low = middle + 1
        else:
            high = middle
    return low
