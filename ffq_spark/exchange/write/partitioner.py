"""Bring rows into partition order, in two passes over pieces that fit into the processor's cache.

Rows come in any order. The first pass arranges a block of rows as soon as it is full; the second
gathers the rows of a few partitions from all blocks. A single gather over all rows would wait for
main memory at every row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

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
    """Rows in partition order: partition p has the rows from `bounds[p]` to `bounds[p + 1]`."""

    batch: pa.RecordBatch
    bounds: NDArray[np.int32]
    nbytes: int


def arrange(batch: pa.RecordBatch, job: WriteJob) -> Block:
    """Bring the rows of a batch into partition order; within a partition their order stays."""
    partitions = job.exchange.partitions
    if partitions == 1:
        bounds = np.array([0, batch.num_rows], np.int32)
    else:
        # Sixteen bits make numpy's stable sort a radix sort.
        ids = row_partitions(job.exchange, batch).astype(np.uint16)
        counts = np.bincount(ids, minlength=partitions)
        bounds = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        batch = batch.take(pa.array(np.argsort(ids, kind="stable")))
    return Block(batch, bounds, int(batch.nbytes + bounds.nbytes))


@dataclass(frozen=True)
class PartitionRange:
    """Rows of neighbouring partitions: those of `reduces[i]` begin at `starts[i]`."""

    batch: pa.RecordBatch
    reduces: NDArray[np.int64]
    starts: NDArray[np.int64]
    stats: pa.StructArray | None = None

    def segments(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield each partition with its rows."""
        ends = [*self.starts[1:].tolist(), self.batch.num_rows]
        for reduce, start, end in zip(
            self.reduces.tolist(), self.starts.tolist(), ends, strict=True
        ):
            yield reduce, self.batch.slice(start, end - start)


def row_counts(blocks: Sequence[Block]) -> NDArray[np.int64]:
    """Count the rows that each partition has in all blocks."""
    counts: NDArray[np.int64] = np.stack([np.diff(block.bounds) for block in blocks]).sum(0)
    return counts


def gather(blocks: Sequence[Block], job: WriteJob, limit: int) -> Iterator[PartitionRange]:
    """Yield the rows of all blocks, partition by partition, in `sortBy` order within each of them.

    A range has several small partitions, or one larger partition. A partition of more than `limit`
    bytes comes in several ranges, unless its rows must be sorted.
    """
    counts = row_counts(blocks)
    bytes_per_row = sum(block.nbytes for block in blocks) / max(int(counts.sum()), 1)
    most_rows = max(int(limit / max(bytes_per_row, 1)), 1)
    bounds = np.stack([block.bounds for block in blocks])
    batches = [block.batch for block in blocks]
    fields = job.stats_fields
    for first, end in _neighbours(counts, most_rows):
        for rows in _gather(batches, bounds, first, end, job, limit):
            if fields:
                stats = segment_statistics(rows.batch, rows.starts, fields)
                rows = replace(rows, stats=stats)
            yield rows


def _neighbours(counts: NDArray[np.int64], most_rows: int) -> Iterator[tuple[int, int]]:
    """Yield bounds of neighbouring partitions with at most `most_rows`, or of one that has more."""
    first = end = held = 0
    for partition, count in enumerate(counts.tolist()):
        if held and held + count > most_rows:
            yield first, partition
            held = 0
        if count:
            first, end = (first if held else partition), partition + 1
        held += count
    if held:
        yield first, end


def _gather(
    batches: Sequence[pa.RecordBatch],
    bounds: NDArray[np.int32],
    first: int,
    end: int,
    job: WriteJob,
    limit: int,
) -> Iterator[PartitionRange]:
    """Yield the rows of the partitions from `first` to before `end`, without statistics."""
    places = zip(batches, bounds[:, first].tolist(), bounds[:, end].tolist(), strict=True)
    slices = [batch.slice(start, stop - start) for batch, start, stop in places if stop > start]
    if end - first > 1:
        if sum(batch.nbytes for batch in slices) <= 2 * limit:
            yield _merge(slices, np.diff(bounds[:, first : end + 1]), first, job)
            return
        # Few rows, but wide ones.
        for partition in range(first, end):
            yield from _gather(batches, bounds, partition, partition + 1, job, limit)
    elif slices:
        pieces = iter([_sort(slices, job)]) if job.sort_by else join_small(slices, limit)
        yield from (PartitionRange(piece, np.array([first]), np.array([0])) for piece in pieces)


def _merge(
    slices: Sequence[pa.RecordBatch], counts: NDArray[np.int32], first: int, job: WriteJob
) -> PartitionRange:
    """Merge slices that have rows of several partitions each, so that each partition is whole."""
    rows = concat(slices)
    numbers = np.arange(first, first + counts.shape[1], dtype=np.uint16)
    ids = np.repeat(np.tile(numbers, len(counts)), counts.ravel())
    if job.sort_by:
        columns = [pa.array(ids), *(rows.column(name) for name in job.sort_by)]
        rows = rows.take(sort_indices(columns))
    elif len(slices) > 1:
        rows = rows.take(pa.array(np.argsort(ids, kind="stable")))
    totals = np.sum(counts, 0, np.int64)
    present = np.flatnonzero(totals)
    starts = np.cumsum(totals) - totals
    return PartitionRange(rows, present + first, starts[present])


def _sort(slices: Sequence[pa.RecordBatch], job: WriteJob) -> pa.RecordBatch:
    rows = concat(slices)
    return rows.take(sort_indices([rows.column(name) for name in job.sort_by]))
