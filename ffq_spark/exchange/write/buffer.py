"""Buffer the rows of a map task, and spill them to local disk when the memory limit is reached.

Blocks of arranged rows are kept until they reach the limit, and are then written to local disk as
a run. At the end all runs are read back, partition by partition.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ffq_spark.exchange.compute.batch_sizes import (
    ROW_OVERHEAD,
    batch_cost,
    join_small,
    split_evenly,
)
from ffq_spark.exchange.compute.merge import merge_sorted
from ffq_spark.exchange.compute.spill import spill_directory
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.exchange.write.partitioner import (
    Block,
    PartitionRange,
    arrange,
    gather,
    row_counts,
)
from ffq_spark.format import statistics

# Arrow's 32-bit string offsets bound what one batch may hold.
_MAX_RUN_BYTES = 1 << 30
_PART_BATCH_BYTES = 16 << 20
# Fits into a processor's cache beside other data.
_BLOCK_BYTES = 2 << 20
# Sorting needs three copies of the rows for a moment, as all may belong to one partition.
_COPIES, _COPIES_TO_SORT = 1.25, 3.25
_MERGE_WAYS = 256
_LEAST_SPILL_BATCH = 64 << 10


class PartitionBuffer:
    """All rows of a map task, to be read back by `part`, partition by partition."""

    def __init__(self, job: WriteJob) -> None:
        self._job = job
        copies = _COPIES_TO_SORT if job.sort_by else _COPIES
        self._run_bytes = min(int(job.max_buffer_bytes / copies), _MAX_RUN_BYTES)
        self._block_bytes = min(_BLOCK_BYTES, max(self._run_bytes // 8, 1))
        self._spill_batch_bytes = max(self._run_bytes // _MERGE_WAYS, _LEAST_SPILL_BATCH)
        self._batches: list[pa.RecordBatch] = []
        self._waiting = 0
        self._blocks: list[Block] = []
        self._buffered = 0
        self._runs: list[MemoryRun | SpilledRun] = []
        self._stats: list[pa.StructArray] = []
        self._stats_reduces: list[NDArray[np.int64]] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a batch; rows that exceed the memory limit are spilled to disk."""
        if not batch.num_rows:
            return
        for piece in split_evenly(batch, self._block_bytes):
            self._batches.append(piece)
            self._waiting += batch_cost(piece)
            if self._waiting >= self._block_bytes:
                self._arrange()
                if self._buffered >= self._run_bytes:
                    self._runs.append(SpilledRun(self._gather(), self._spill_batch_bytes))
                    self._blocks, self._buffered = [], 0

    def finish(self) -> None:
        """End the input: the rows that are still in memory become a run in memory."""
        if self._batches:
            self._arrange()
        if self._blocks:
            present = np.flatnonzero(row_counts(self._blocks))
            self._runs.append(MemoryRun(present, self._gather()))

    def _arrange(self) -> None:
        block = arrange(pa.concat_batches(self._batches), self._job)
        self._batches, self._waiting = [], 0
        self._blocks.append(block)
        # Sorting also needs the position of each row.
        positions = block.batch.num_rows * ROW_OVERHEAD if self._job.sort_by else 0
        self._buffered += block.nbytes + positions

    def _gather(self) -> Iterator[PartitionRange]:
        """Yield the rows of all blocks by partition, and keep their statistics."""
        for rows in gather(self._blocks, self._job, max(self._block_bytes, _LEAST_SPILL_BATCH)):
            if rows.stats is not None:
                self._stats.append(rows.stats)
                self._stats_reduces.append(rows.reduces)
            yield rows

    @property
    def spilled(self) -> int:
        """Number of runs that were spilled to disk."""
        return sum(isinstance(run, SpilledRun) for run in self._runs)

    def reduces(self) -> NDArray[np.int64]:
        """Return the partitions that have rows, ascending."""
        if not self._runs:
            return np.empty(0, np.int64)
        return np.unique(np.concatenate([run.reduces for run in self._runs]))

    def stats(self) -> pa.StructArray | None:
        """Return the statistics of the parts in the order of `reduces`, after all were read."""
        if not self._stats:
            return None
        reduces, owners = self.reduces(), np.concatenate(self._stats_reduces)
        if np.array_equal(owners, reduces):
            return pa.concat_arrays(self._stats)
        owners = np.searchsorted(reduces, owners)
        return statistics.merge(pa.chunked_array(self._stats), owners, len(reduces))

    def part(self, reduce: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition, in batches that are small only if the part is.

        Each partition may be read once, in ascending order.
        """
        sources = [run.batches(reduce) for run in self._runs]
        if self._job.sort_by and len(sources) > 1:
            return join_small(merge_sorted(sources, self._job.sort_by), _PART_BATCH_BYTES)
        return join_small(chain.from_iterable(sources), _PART_BATCH_BYTES)

    def close(self) -> None:
        """Free the disk space of spilled runs."""
        for run in self._runs:
            if isinstance(run, SpilledRun):
                run.close()


class MemoryRun:
    """A run that stays in memory; its partitions are gathered when they are read."""

    def __init__(self, reduces: NDArray[np.int64], ranges: Iterable[PartitionRange]) -> None:
        self.reduces = reduces
        self._segments = (segment for rows in ranges for segment in rows.segments())
        self._next = next(self._segments, None)

    def batches(self, reduce: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition; partitions must be read in ascending order."""
        while self._next is not None and self._next[0] == reduce:
            batch = self._next[1]
            self._next = next(self._segments, None)
            yield from split_evenly(batch, _PART_BATCH_BYTES)


class SpilledRun:
    """A run on local disk, in a file without a name, so that a crash cannot leave it behind."""

    def __init__(self, ranges: Iterable[PartitionRange], batch_bytes: int) -> None:
        descriptor, path = tempfile.mkstemp(prefix="ffq-spill-", dir=spill_directory())
        os.close(descriptor)
        try:
            with pa.OSFile(path, "wb") as sink:
                owners = list(_spill(sink, ranges, batch_bytes))
            self._file = pa.OSFile(path, "rb")
        finally:
            os.unlink(path)
        self._reader = pa.ipc.open_file(self._file)
        self.reduces, self._first = np.unique(np.array(owners, np.int64), return_index=True)
        self._end = len(owners)

    def batches(self, reduce: int) -> Iterator[pa.RecordBatch]:
        """Read the rows of a partition from disk."""
        position = int(np.searchsorted(self.reduces, reduce))
        if position < len(self.reduces) and self.reduces[position] == reduce:
            last = position + 1 == len(self.reduces)
            end = self._end if last else int(self._first[position + 1])
            for number in range(int(self._first[position]), end):
                yield self._reader.get_batch(number)

    def close(self) -> None:
        self._file.close()


def _spill(
    sink: pa.NativeFile, ranges: Iterable[PartitionRange], batch_bytes: int
) -> Iterator[int]:
    """Write all rows to a file, and yield the partition of each batch."""
    writer: pa.ipc.RecordBatchFileWriter | None = None
    for rows in ranges:
        writer = writer or pa.ipc.new_file(sink, rows.batch.schema)
        for reduce, segment in rows.segments():
            for batch in split_evenly(segment, batch_bytes):
                writer.write_batch(batch)
                yield reduce
    if writer is not None:
        writer.close()
