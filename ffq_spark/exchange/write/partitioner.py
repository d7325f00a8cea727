"""Rows brought into partition order, twice in pieces that fit into the processor's cache.

Rows come in any order. A block of them is arranged as soon as it is full; later the blocks' slices
of a few partitions are brought together. One gather over all rows would wait for memory at every
row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ffq_spark.exchange.compute.batch_sizes import concat, join_small
from ffq_spark.exchange.compute.row_partitions import row_partitions
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.format.ordering import sort_indices
from ffq_spark.format.statistics import segment_statistics


@dataclass(frozen=True)
class Block:
    """Rows in partition order: partition p owns those from `bounds[p]` to `bounds[p + 1]`."""

    batch: pa.RecordBatch
    bounds: NDArray[np.int32]

    @property
    def nbytes(self) -> int:
        return int(self.batch.nbytes + self.bounds.nbytes)


def arrange(batch: pa.RecordBatch, job: WriteJob) -> Block:
    """Bring the rows of a batch into partition order; those of a partition keep theirs."""
    exchange = job.exchange
    if exchange.partitions == 1:
        return Block(batch, np.array([0, batch.num_rows], np.int32))
    # Sixteen bits make numpy's stable sort a radix sort.
    ids = row_partitions(exchange, batch).astype(np.uint16)
    counts = np.bincount(ids, minlength=exchange.partitions)
    bounds = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return Block(batch.take(pa.array(np.argsort(ids, kind="stable"))), bounds)


@dataclass(frozen=True)
class Group:
    """Rows of some partitions: `reduces[i]` owns those from `starts[i]` to the next start."""

    batch: pa.RecordBatch
    reduces: NDArray[np.int64]
    starts: NDArray[np.int64]
    stats: pa.StructArray | None

    def segments(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Each partition with its rows."""
        ends = [*self.starts[1:].tolist(), self.batch.num_rows]
        for reduce, start, end in zip(
            self.reduces.tolist(), self.starts.tolist(), ends, strict=True
        ):
            yield reduce, self.batch.slice(start, end - start)


def row_counts(blocks: Sequence[Block]) -> NDArray[np.int64]:
    """How many rows each partition has in all blocks."""
    counts: NDArray[np.int64] = np.stack([np.diff(block.bounds) for block in blocks]).sum(0)
    return counts


def groups(blocks: Sequence[Block], job: WriteJob, limit: int) -> Iterator[Group]:
    """All rows, partition by partition, in `sortBy` order within each of them.

    A group is of several small partitions, or of one larger one, or a piece of one that is larger
    than `limit` bytes, unless its rows must be sorted.
    """
    counts = row_counts(blocks)
    bytes_per_row = sum(block.nbytes for block in blocks) / max(int(counts.sum()), 1)
    most = max(int(limit / max(bytes_per_row, 1)), 1)
    bounds = np.stack([block.bounds for block in blocks])
    batches = [block.batch for block in blocks]
    fields = job.stats_fields
    for first, last in _spans(counts, most):
        for rows in _gathered(batches, bounds, first, last, job, limit):
            stats = segment_statistics(rows.batch, rows.starts, fields) if fields else None
            yield Group(rows.batch, rows.reduces, rows.starts, stats)


def _gathered(
    batches: Sequence[pa.RecordBatch],
    bounds: NDArray[np.int32],
    first: int,
    last: int,
    job: WriteJob,
    limit: int,
) -> Iterator[_Rows]:
    slices = _slices(batches, bounds[:, first].tolist(), bounds[:, last].tolist())
    if last - first > 1:
        if sum(batch.nbytes for batch in slices) <= 2 * limit:
            yield _together(slices, np.diff(bounds[:, first : last + 1]), first, job)
            return
        # Few rows, but wide ones.
        for partition in range(first, last):
            yield from _gathered(batches, bounds, partition, partition + 1, job, limit)
    elif slices:
        whole = iter([_sorted(slices, job)]) if job.sort_by else join_small(slices, limit)
        yield from (_Rows(batch, np.array([first]), np.array([0])) for batch in whole)


class _Rows(NamedTuple):
    """A group without statistics."""

    batch: pa.RecordBatch
    reduces: NDArray[np.int64]
    starts: NDArray[np.int64]


def _spans(counts: NDArray[np.int64], most: int) -> Iterator[tuple[int, int]]:
    """Neighbouring partitions with at most so many rows together, or one that has more."""
    first = held = 0
    for partition, count in enumerate(counts.tolist()):
        if held and held + count > most:
            yield first, partition
            first, held = partition, 0
        if count and not held:
            first = partition
        held += count
    if held:
        yield first, _last(counts)


def _last(counts: NDArray[np.int64]) -> int:
    return int(np.flatnonzero(counts)[-1]) + 1


def _slices(
    batches: Sequence[pa.RecordBatch], starts: Sequence[int], ends: Sequence[int]
) -> list[pa.RecordBatch]:
    """Each batch's rows of a span, where it has any."""
    places = zip(batches, starts, ends, strict=True)
    return [batch.slice(start, end - start) for batch, start, end in places if end > start]


def _together(
    slices: Sequence[pa.RecordBatch], counts: NDArray[np.int32], first: int, job: WriteJob
) -> _Rows:
    """Slices of several partitions as rows of one after the other."""
    whole = concat(slices)
    numbers = np.arange(first, first + counts.shape[1], dtype=np.uint16)
    ids = np.repeat(np.tile(numbers, len(counts)), counts.ravel())
    if job.sort_by:
        columns = [pa.array(ids), *(whole.column(name) for name in job.sort_by)]
        whole = whole.take(sort_indices(columns))
    elif len(slices) > 1:
        whole = whole.take(pa.array(np.argsort(ids, kind="stable")))
    totals = np.sum(counts, 0, np.int64)
    present = np.flatnonzero(totals)
    starts = np.cumsum(totals) - totals
    return _Rows(whole, present + first, starts[present])


def _sorted(slices: Sequence[pa.RecordBatch], job: WriteJob) -> pa.RecordBatch:
    whole = concat(slices)
    return whole.take(sort_indices([whole.column(name) for name in job.sort_by]))
