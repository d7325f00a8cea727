"""The rows of a map task on their way to parts: buffered, arranged, spilled when memory is full.

Buffered batches are arranged by one gather when they reach the limit, and written aside to local
disk as a run. At the end the runs are read back partition by partition.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ffq_spark.exchange.job import WriteJob
from ffq_spark.exchange.merge import merge_sorted
from ffq_spark.exchange.partitioner import Arranged, arrange
from ffq_spark.format import statistics

# Arrow's 32-bit string offsets bound what one batch may hold.
_MAX_RUN_BYTES = 1 << 30
_PART_BATCH_BYTES = 16 << 20
# A gather holds its input, its output, and hash, order and partition of each row.
_COPIES = 2.25
_ROW_OVERHEAD = 32
_MERGE_WAYS = 256
_LEAST_SPILL_BATCH = 64 << 10


class Runs:
    """All rows of a map task; `parts` gives them back in partition order."""

    def __init__(self, job: WriteJob) -> None:
        self._job = job
        self._schema = job.exchange.schema
        limit = min(int(job.max_buffer_bytes / _COPIES), _MAX_RUN_BYTES)
        self._run_bytes = limit
        self._spill_batch_bytes = max(limit // _MERGE_WAYS, _LEAST_SPILL_BATCH)
        self._batches: list[pa.RecordBatch] = []
        self._buffered = 0
        self._runs: list[MemoryRun | SpilledRun] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Take a batch; what exceeds the limit goes to disk."""
        for piece in split(batch, self._run_bytes):
            self._batches.append(piece)
            self._buffered += cost(piece)
            if self._buffered >= self._run_bytes:
                self._runs.append(SpilledRun(self._gather(), self._spill_batch_bytes))

    def _gather(self) -> Arranged:
        whole = pa.concat_batches(self._batches)
        self._batches, self._buffered = [], 0
        return arrange(whole, self._job)

    def finish(self) -> None:
        """No more rows: the last buffer becomes a run that stays in memory."""
        if self._batches:
            self._runs.append(MemoryRun(self._gather()))

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
        """Statistics of the parts, in the order of `reduces`."""
        found = [run.stats for run in self._runs if run.stats is not None]
        if len(found) <= 1:
            return found[0] if found else None
        reduces = self.reduces()
        groups = np.searchsorted(reduces, np.concatenate([run.reduces for run in self._runs]))
        return statistics.merge(pa.chunked_array(found), groups, len(reduces))

    def part(self, reduce: int) -> Iterator[pa.RecordBatch]:
        """The batches of one partition: never tiny ones, unless the part is."""
        sources = [run.batches(reduce) for run in self._runs]
        if self._job.sort_by and len(sources) > 1:
            return join(merge_sorted(sources, self._job.sort_by), _PART_BATCH_BYTES)
        return join((batch for source in sources for batch in source), _PART_BATCH_BYTES)

    def close(self) -> None:
        """Give back the disk space."""
        for run in self._runs:
            run.close()


class MemoryRun:
    """A run that never left memory."""

    def __init__(self, arranged: Arranged) -> None:
        self._arranged = arranged
        self.reduces = arranged.reduces
        self.stats = arranged.stats

    def batches(self, reduce: int) -> Iterator[pa.RecordBatch]:
        position = int(np.searchsorted(self.reduces, reduce))
        if position < len(self.reduces) and self.reduces[position] == reduce:
            yield from split(self._arranged.segment(position), _PART_BATCH_BYTES)

    def close(self) -> None:
        pass


class SpilledRun:
    """A run on local disk. Its file has no name any more, so no crash can leave it behind."""

    def __init__(self, arranged: Arranged, batch_bytes: int) -> None:
        self.reduces = arranged.reduces
        self.stats = arranged.stats
        self._first = [0]
        descriptor, path = tempfile.mkstemp(prefix="ffq-spill-", dir=spill_directory())
        os.close(descriptor)
        try:
            with pa.OSFile(path, "wb") as sink, self._writer(sink, arranged) as writer:
                for position in range(len(self.reduces)):
                    pieces = split(arranged.segment(position), batch_bytes)
                    self._first.append(self._first[-1] + sum(1 for _ in _each(writer, pieces)))
            self._file = pa.OSFile(path, "rb")
        finally:
            os.unlink(path)
        self._reader = pa.ipc.open_file(self._file)

    @staticmethod
    def _writer(sink: pa.NativeFile, arranged: Arranged) -> pa.ipc.RecordBatchFileWriter:
        return pa.ipc.new_file(sink, arranged.batch.schema)

    def batches(self, reduce: int) -> Iterator[pa.RecordBatch]:
        position = int(np.searchsorted(self.reduces, reduce))
        if position < len(self.reduces) and self.reduces[position] == reduce:
            for number in range(self._first[position], self._first[position + 1]):
                yield self._reader.get_batch(number)

    def close(self) -> None:
        self._file.close()


def _each(writer: pa.ipc.RecordBatchFileWriter, pieces: Iterable[pa.RecordBatch]) -> Iterator[None]:
    for piece in pieces:
        yield writer.write_batch(piece)


def spill_directory() -> str:
    """Where Spark keeps its own temporary files, else the system's place."""
    first = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return first if first and os.path.isdir(first) else tempfile.gettempdir()


def cost(batch: pa.RecordBatch) -> int:
    """The memory that a buffered batch needs until it is arranged."""
    return int(batch.nbytes + batch.num_rows * _ROW_OVERHEAD)


def split(batch: pa.RecordBatch, limit: int) -> Iterator[pa.RecordBatch]:
    """Slices of about equal length that hold at most about `limit` bytes each."""
    count = min(-(-cost(batch) // limit), batch.num_rows)
    if count <= 1:
        yield batch
        return
    rows = -(-batch.num_rows // count)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def join(batches: Iterable[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    """Neighbouring batches together, up to `limit` bytes."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if held and size + batch.nbytes > limit:
            yield pa.concat_batches(held)
            held, size = [], 0
        held.append(batch)
        size += batch.nbytes
    if held:
        yield held[0] if len(held) == 1 else pa.concat_batches(held)
