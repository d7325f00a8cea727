"""Rows are gathered by partition, completely, for any division into blocks."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from layouts import write_options

from ffq_spark.exchange.compute.row_partitions import row_partitions
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.exchange.write.partitioner import arrange, gather, row_counts
from ffq_spark.format.records import ExchangeRecord, QueryRecord

SCHEMA = pa.schema([("k", pa.int64()), ("position", pa.int64()), ("text", pa.string())])
QUERY = QueryRecord(1, "me", 0, "append", 0)


def job_of(partitions: int, sort_by: tuple[str, ...] = ()) -> WriteJob:
    options = write_options(keys=("k",), partitions=partitions, sort_by=sort_by)
    return WriteJob.of(ExchangeRecord.of(SCHEMA, ("k",), partitions), QUERY, options)


def batches_of(blocks: list[list[int]], width: int = 1) -> list[pa.RecordBatch]:
    """Make batches of these keys; `position` is a row's number among all rows."""
    starts = np.cumsum([0, *map(len, blocks)]).tolist()
    return [
        pa.record_batch(
            [keys, range(start, start + len(keys)), ["x" * width] * len(keys)], schema=SCHEMA
        )
        for keys, start in zip(blocks, starts, strict=False)
    ]


def test_a_block_keeps_the_order_of_a_partitions_rows() -> None:
    job = job_of(4)
    (batch,) = batches_of([[5, 1, 5, 2, 1, 9, 5]])
    block = arrange(batch, job)
    assert block.nbytes == block.batch.nbytes + block.bounds.nbytes
    for partition in range(4):
        start, end = block.bounds[partition : partition + 2].tolist()
        rows = block.batch.slice(start, end - start)
        assert set(row_partitions(job.exchange, rows).tolist()) <= {partition}
        positions = rows["position"].to_pylist()
        assert positions == sorted(positions)
    assert row_counts([block, block]).sum() == 14


@given(
    st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=30), min_size=1, max_size=5),
    st.sampled_from([1, 3, 64]),
    st.sampled_from([(), ("k",), ("text", "k")]),
    st.sampled_from([1, 200, 2_000, 1 << 20]),
    st.sampled_from([1, 300]),
)
def test_every_row_is_gathered_once_in_its_partition(
    blocks: list[list[int]], partitions: int, sort_by: tuple[str, ...], limit: int, width: int
) -> None:
    job = job_of(partitions, sort_by)
    batches = batches_of(blocks, width)
    rows: dict[int, list[dict[str, int]]] = defaultdict(list)
    order: list[int] = []
    for part in gather([arrange(batch, job) for batch in batches], job, limit):
        assert part.stats is not None and len(part.stats) == len(part.reduces)
        for reduce, segment in part.segments():
            assert segment.num_rows
            order.append(reduce)
            rows[reduce] += segment.to_pylist()
    assert order == sorted(order)
    expected: dict[int, list[dict[str, int]]] = defaultdict(list)
    for batch in batches:
        places = row_partitions(job.exchange, batch).tolist()
        for place, row in zip(places, batch.to_pylist(), strict=True):
            expected[place].append(row)
    if sort_by:
        # Each partition's rows are sorted; equal keys keep their original order.
        for place in expected:
            expected[place].sort(key=lambda row: row["k"])
    assert rows == expected


@pytest.mark.parametrize("limit", [100, 10_000])
def test_statistics_are_those_of_each_partitions_rows(limit: int) -> None:
    job = job_of(8)
    blocks = [arrange(batch, job) for batch in batches_of([list(range(50)), list(range(50, 99))])]
    for part in gather(blocks, job, limit):
        assert part.stats is not None
        for (_, segment), stats in zip(part.segments(), part.stats.to_pylist(), strict=True):
            keys = segment["k"].to_pylist()
            assert stats["k"] == {"min": min(keys), "max": max(keys), "nulls": 0}
