"""One buffer of rows, arranged by reduce partition with a single gather."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ffq_spark.exchange.job import WriteJob
from ffq_spark.format.hashing import partition_ids
from ffq_spark.format.ordering import sort_indices
from ffq_spark.format.statistics import segment_statistics


@dataclass(frozen=True)
class Arranged:
    """Rows in partition order; `reduces[i]` owns the rows from `starts[i]` to the next start."""

    batch: pa.RecordBatch
    reduces: NDArray[np.int64]
    starts: NDArray[np.int64]
    stats: pa.StructArray | None

    def segment(self, position: int) -> pa.RecordBatch:
        """The rows of the partition at this position."""
        start = int(self.starts[position])
        last = position + 1 == len(self.starts)
        end = self.batch.num_rows if last else int(self.starts[position + 1])
        return self.batch.slice(start, end - start)


def arrange(batch: pa.RecordBatch, job: WriteJob) -> Arranged:
    """Bring rows into partition order, and into `sortBy` order inside each partition."""
    exchange = job.exchange
    keys = [batch.column(name) for name in exchange.keys]
    if exchange.partitions == 1:
        ids = np.zeros(batch.num_rows, np.uint16)
    else:
        # Sixteen bits make numpy's stable sort a radix sort.
        ids = partition_ids(keys, exchange.partitions, exchange.hash).astype(np.uint16)
    if job.sort_by:
        order = sort_indices([pa.array(ids), *(batch.column(name) for name in job.sort_by)])
        batch = batch.take(order)
        ids = ids[order.to_numpy()]
    elif exchange.partitions > 1:
        order = np.argsort(ids, kind="stable")
        batch = batch.take(pa.array(order))
        ids = ids[order]
    starts = np.flatnonzero(np.diff(ids, prepend=np.int64(-1)))
    fields = job.stats_fields
    return Arranged(
        batch,
        ids[starts].astype(np.int64),
        starts,
        segment_statistics(batch, starts, fields) if fields else None,
    )
