"""The rows of a map task on their way to parts: buffered, arranged, spilled when memory is full.

Blocks of arranged rows are kept until they reach the limit, and then written aside to local disk
as a run. At the end the runs are read back partition by partition.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator

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
from ffq_spark.exchange.write.partitioner import Block, Group, arrange, groups, row_counts
from ffq_spark.format import statistics

# Arrow's 32-bit string offsets bound what one batch may hold.
_MAX_RUN_BYTES = 1 << 30
_PART_BATCH_BYTES = 16 << 20
# What a processor's cache holds beside other things.
_BLOCK_BYTES = 2 << 20
# Rows that are sorted exist three times for a moment: all of them may be of one partition.
_COPIES, _COPIES_TO_SORT = 1.25, 3.25
_MERGE_WAYS = 256
_LEAST_SPILL_BATCH = 64 << 10


class Runs:
    """All rows of a map task; `part` gives them back, partition by partition."""

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

    def add(self, batch: pa.RecordBatch) -> None:
        """Take a batch; what exceeds the limit goes to disk."""
        if not batch.num_rows:
            return
        for piece in split_evenly(batch, self._block_bytes):
            self._batches.append(piece)
            self._waiting += batch_cost(piece)
            if self._waiting >= self._block_bytes:
                self._arrange()
                if self._buffered >= self._run_bytes:
                    self._runs.append(SpilledRun(self._groups(), self._spill_batch_bytes))
                    self._blocks, self._buffered = [], 0

    def _arrange(self) -> None:
        block = arrange(pa.concat_batches(self._batches), self._job)
        self._batches, self._waiting = [], 0
        self._blocks.append(block)
        # Sorting needs the order of each row besides.
        order = block.batch.num_rows * ROW_OVERHEAD if self._job.sort_by else 0
        self._buffered += block.nbytes + order

    def _groups(self) -> Iterator[Group]:
        return groups(self._blocks, self._job, max(self._block_bytes, _LEAST_SPILL_BATCH))

    def finish(self) -> None:
        """No more rows: the last ones become a run that stays in memory."""
        if self._batches:
            self._arrange()
        if self._blocks:
            present = np.flatnonzero(row_counts(self._blocks))
            self._runs.append(MemoryRun(present, self._groups()))

    @property
    def spilled(self) -> int:
        """How many runs went to disk."""
        return sum(isinstance(run, SpilledRun) for run in self._runs)

    def reduces(self) -> NDArray[np.int64]:
        """The partitions that have rows, ascending."""
        if not self._runs:
            return np.empty(0, np.int64)
        return np.unique(np.concatenate([run.reduces for run in self._runs]))

    def stats(self) -> pa.StructArray | None:
        """Statistics of the parts, in the order of `reduces`, once all parts were given."""
        found = [piece for run in self._runs for piece in run.stats.pieces]
        if not found:
            return None
        reduces = self.reduces()
        owners = np.concatenate([one for run in self._runs for one in run.stats.reduces])
        if np.array_equal(owners, reduces):
            return pa.concat_arrays(found)
        owners = np.searchsorted(reduces, owners)
        return statistics.merge(pa.chunked_array(found), owners, len(reduces))

    def part(self, reduce: int) -> Iterator[pa.RecordBatch]:
        """The batches of one partition, of which each is asked for once, in ascending order.

        None of them is tiny, unless the part is.
        """
        sources = [run.batches(reduce) for run in self._runs]
        if self._job.sort_by and len(sources) > 1:
            return join_small(merge_sorted(sources, self._job.sort_by), _PART_BATCH_BYTES)
        return join_small((batch for source in sources for batch in source), _PART_BATCH_BYTES)

    def close(self) -> None:
        """Give back the disk space."""
        for run in self._runs:
            run.close()


class _Statistics:
    """Statistics of groups, collected as these pass by."""

    def __init__(self) -> None:
        self.reduces: list[NDArray[np.int64]] = []
        self.pieces: list[pa.StructArray] = []

    def of(self, groups: Iterable[Group]) -> Iterator[Group]:
        for group in groups:
            if group.stats is not None:
                self.reduces.append(group.reduces)
                self.pieces.append(group.stats)
            yield group


class MemoryRun:
    """A run that never left memory; its partitions are gathered when they are asked for."""

    def __init__(self, reduces: NDArray[np.int64], groups: Iterable[Group]) -> None:
        self.reduces = reduces
        self.stats = _Statistics()
        self._segments = (
            segment for group in self.stats.of(groups) for segment in group.segments()
        )
        self._next = next(self._segments, None)

    def batches(self, reduce: int) -> Iterator[pa.RecordBatch]:
        while self._next is not None and self._next[0] == reduce:
            batch = self._next[1]
            self._next = next(self._segments, None)
            yield from split_evenly(batch, _PART_BATCH_BYTES)

    def close(self) -> None:
        pass


class SpilledRun:
    """A run on local disk. Its file has no name any more, so no crash can leave it behind."""

    def __init__(self, groups: Iterable[Group], batch_bytes: int) -> None:
        self.stats = _Statistics()
        descriptor, path = tempfile.mkstemp(prefix="ffq-spill-", dir=spill_directory())
        os.close(descriptor)
        try:
            with pa.OSFile(path, "wb") as sink:
                owners = list(_spill(sink, self.stats.of(groups), batch_bytes))
            self._file = pa.OSFile(path, "rb")
        finally:
            os.unlink(path)
        self._reader = pa.ipc.open_file(self._file)
        self.reduces, self._first = np.unique(np.array(owners, np.int64), return_index=True)
        self._end = len(owners)

    def batches(self, reduce: int) -> Iterator[pa.RecordBatch]:
        position = int(np.searchsorted(self.reduces, reduce))
        if position < len(self.reduces) and self.reduces[position] == reduce:
            last = position + 1 == len(self.reduces)
            end = self._end if last else int(self._first[position + 1])
            for number in range(int(self._first[position]), end):
                yield self._reader.get_batch(number)

    def close(self) -> None:
        self._file.close()


def _spill(sink: pa.NativeFile, groups: Iterable[Group], batch_bytes: int) -> Iterator[int]:
    """Write all rows, and tell the partition of each batch."""
    writer: pa.ipc.RecordBatchFileWriter | None = None
    for group in groups:
        writer = writer or pa.ipc.new_file(sink, group.batch.schema)
        for reduce, segment in group.segments():
            for batch in split_evenly(segment, batch_bytes):
                writer.write_batch(batch)
                yield reduce
    if writer is not None:
        writer.close()
