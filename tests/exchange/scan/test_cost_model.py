"""The cost model, compared with small examples and with the requests to a real S3 server."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from conftest import Place
from hypothesis import example, given
from hypothesis import strategies as st
from layouts import write_options
from s3proxy import S3Proxy
from s3requests import counted_requests

from ffq_spark.errors import BadOption
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.read.column_ranges import ColumnSelection
from ffq_spark.exchange.read.fetch import fetch_parts
from ffq_spark.exchange.read.serial_read import read_parts
from ffq_spark.exchange.scan.cost_model import (
    LAYOUTS,
    LEAST_PART_BYTES,
    READ_RECORDS,
    WRITE_RECORDS,
    Prices,
    Requests,
    Shape,
    estimate,
    upload_requests,
)
from ffq_spark.exchange.scan.snapshot import take_snapshot
from ffq_spark.exchange.scan.tasks import read_tasks
from ffq_spark.exchange.write.attempt_writer import write_attempt
from ffq_spark.exchange.write.commit import commit_write
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.exchange.write.prepare import prepare
from ffq_spark.format.manifest import with_file_ends
from ffq_spark.format.records import StepRecord
from ffq_spark.options import ReadOptions, WriteOptions
from ffq_spark.store import ReadTotals, Store

MIB = 1 << 20
MAPS, PARTITIONS = 3, 4
SMALL = pa.record_batch({"k": list(range(100))})


def test_parts_are_one_object_and_one_get_each() -> None:
    costs = estimate(Shape(10, 20, 10 * 20 * MIB))
    assert costs.write_data == Requests(put=10 * 20 + 2 * 10)
    assert costs.read_data == Requests(get=10 * 20)
    assert costs.read_tasks == 2  # 12 partitions of 10 MiB fit into 128 MiB


def test_a_packed_object_is_uploaded_and_read_in_pieces() -> None:
    costs = estimate(Shape(10, 20, 10 * 20 * MIB, "packed"))
    assert costs.write_data == Requests(put=10 * 1 + 2 * 10)
    assert costs.read_data == Requests(get=2 * 10)
    large = estimate(Shape(10, 20, 10 * 20 * 10 * MIB, "packed"))
    assert large.write_data == Requests(put=10 * (2 + 13) + 2 * 10)
    assert large.read_tasks == 20 and large.read_data == Requests(get=20 * 10)
    joined = estimate(Shape(10, 20, 10 * 20 * 10 * MIB, "packed", tasks=2))
    assert joined.read_tasks == 2 and joined.read_data == Requests(get=2 * 10 * 10)


def test_a_heavy_partition_is_split_without_more_requests() -> None:
    costs = estimate(Shape(16, 1, 16 * 64 * MIB, "packed"))
    assert costs.read_tasks == 8 and costs.read_data.get == 16
    assert estimate(Shape(16, 1, 16 * 64 * MIB)).read_data.get == 16


def test_an_upload_is_one_request_or_several() -> None:
    sizes = (1, 32 * MIB, 32 * MIB + 1, 48 * MIB, 48 * MIB + 1)
    assert [upload_requests(size) for size in sizes] == [1, 1, 5, 5, 6]


def test_dollars_are_by_the_kind_of_request() -> None:
    assert Requests(put=2000, get=5000, list=1000, delete=7000).dollars(Prices()) == pytest.approx(
        3 * 0.005 + 5 * 0.0004
    )
    stored = estimate(Shape(1, 1, 1 << 30)).monthly_dollars(Prices(storage=1.0))
    assert stored == pytest.approx(1.0, rel=1e-4)


@pytest.mark.parametrize(
    ("change", "option"),
    [
        ({"maps": 0}, "maps"),
        ({"partitions": 0}, "partitions"),
        ({"partitions": 10_001}, "partitions"),
        ({"bytes": LEAST_PART_BYTES * 12 - 1}, "bytes"),
        ({"layout": "heap"}, "layout"),
        ({"tasks": -1}, "tasks"),
        ({"target_partition_bytes": 0}, "target_partition_bytes"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(change: dict[str, Any], option: str) -> None:
    good = Shape(MAPS, PARTITIONS, LEAST_PART_BYTES * 12)
    with pytest.raises(BadOption) as caught:
        replace(good, **change)
    assert caught.value.option == option


@given(
    maps=st.integers(1, 50),
    partitions=st.integers(1, 50),
    part=st.integers(LEAST_PART_BYTES, 64 * MIB),
    tasks=st.integers(0, 20),
)
def test_packed_never_asks_for_more(maps: int, partitions: int, part: int, tasks: int) -> None:
    shape = Shape(maps, partitions, maps * partitions * part, tasks=tasks)
    parts, packed = (estimate(replace(shape, layout=layout)) for layout in LAYOUTS)
    assert packed.objects <= parts.objects and packed.read_tasks == parts.read_tasks
    assert packed.read_data.get <= parts.read_data.get
    # Each task reads a part of every map task's object.
    assert packed.read_data.get >= min(packed.read_tasks, partitions) * maps


class Asked:
    """A store without data that counts the requested ranges."""

    ranges = 0

    def fetch(self, requests: Iterable[Any], *_: Any) -> Iterator[Any]:
        self.ranges += sum(1 for _ in requests)
        return iter(())


@given(
    maps=st.integers(1, 12),
    partitions=st.integers(1, 40),
    part=st.integers(LEAST_PART_BYTES, 64 * MIB),
    tasks=st.integers(0, 20),
)
@example(maps=10, partitions=64, part=MIB, tasks=1)
@example(maps=16, partitions=8, part=MIB, tasks=1)
def test_the_model_counts_the_ranges_of_any_shape(
    maps: int, partitions: int, part: int, tasks: int
) -> None:
    """The counts agree for tasks of any size."""
    shape = Shape(maps, partitions, maps * partitions * part, "packed", tasks=tasks)
    rows = [(p, m) for p in range(partitions) for m in range(maps)]
    columns = {
        "reduce": [p for p, _ in rows],
        "file": [f"shuffle/7/0/{m}/1/parts.ipc" for _, m in rows],
        "offset": [p * part for p, _ in rows],
        "bytes": [part] * len(rows),
    }
    costs, store = estimate(shape), Asked()
    options = ReadOptions(target_partition_bytes=shape.task_bytes)
    planned = read_tasks(with_file_ends(pa.table(columns)), options, shape.partitions)
    for task in planned:
        whole = ColumnSelection(SMALL.schema, SMALL.schema.names, local=False)
        parts = pa.Table.from_batches([task.parts])
        totals = ReadTotals()
        assert not list(fetch_parts(store, parts, "full", options.credits, totals, whole))  # type: ignore[arg-type]
    assert (len(planned), store.ranges) == (costs.read_tasks, costs.read_data.get)


def write(
    store: Store, options: WriteOptions, batch: pa.RecordBatch = SMALL, maps: int = MAPS
) -> StepRecord:
    """Write a step of several map tasks, each with rows of every partition."""
    exchange = prepare(store, options, batch.schema)
    job = WriteJob.of(exchange, Ledger(store).begin("append", "test"), options)
    outputs = [write_attempt(store, job, number, 1, [batch]) for number in range(maps)]
    step = commit_write(store, job, outputs, None)
    assert step is not None
    return step


def read(store: Store, options: ReadOptions) -> int:
    """Read all rows of the exchange, task by task; return the number of tasks."""
    snapshot = take_snapshot(store, options)
    tasks = read_tasks(snapshot.parts(), options, 64)
    schema = snapshot.exchange.schema
    tables = [pa.Table.from_batches([task.parts]) for task in tasks]
    rows = sum(batch.num_rows for parts in tables for batch in read_parts(store, parts, schema))
    assert rows == sum(step.body.rows for step in snapshot.steps)
    return len(tasks)


def within(counted: Requests, most: Requests) -> bool:
    return all(count <= vars(most)[kind] for kind, count in vars(counted).items())


@pytest.mark.parametrize("layout", ["parts", "packed"])
def test_the_model_counts_what_a_server_is_asked(s3: Any, layout: str) -> None:
    """The model is exact for data, and an upper bound for records."""
    place = (f"s3://{s3.bucket}/{uuid.uuid4().hex}", s3.storage_options)
    options = write_options(keys=("k",), partitions=PARTITIONS, layout=layout)
    with counted_requests() as writing:
        step = write(Store(*place), options)
    shape = Shape(MAPS, PARTITIONS, step.body.bytes, layout, tasks=2)
    costs = estimate(shape)
    with counted_requests() as reading:
        tasks = read(Store(*place), ReadOptions(min_tasks=2, max_tasks=2))
    assert writing.requests(data=True) == costs.write_data
    assert reading.requests(data=True) == costs.read_data
    assert (tasks, step.body.parts) == (costs.read_tasks, shape.parts)
    assert writing.requests(data=False).put == WRITE_RECORDS.put
    assert within(writing.requests(data=False), WRITE_RECORDS)
    assert within(reading.requests(data=False), READ_RECORDS)
    files = Store(*place).walk("")
    indexes = sum(size for path, size in files if "index." in path)
    assert len(files) == costs.objects
    assert indexes == pytest.approx(costs.index_bytes, rel=0.2)
    assert step.body.manifest_bytes <= costs.manifest_bytes <= 2 * step.body.manifest_bytes
    with counted_requests() as again:
        write(Store(*place), options)
    assert again.requests(data=True) == costs.write_data
    assert within(again.requests(data=False), WRITE_RECORDS)


@pytest.mark.parametrize("layout", ["parts", "packed"])
def test_the_model_counts_every_request_of_a_large_upload(
    proxied: Place, proxy: S3Proxy, layout: str
) -> None:
    """The proxy counts requests; packed, the 40 MiB of one map task are uploaded in three parts."""
    rows = 40 * 1024
    noise = pa.py_buffer(random.Random(0).randbytes(rows * 1024))
    noise = pa.Array.from_buffers(pa.binary(1024), rows, [None, noise])
    batch = pa.record_batch({"k": list(range(rows)), "noise": noise})
    options = write_options(keys=("k",), partitions=PARTITIONS, layout=layout)
    store = Store(proxied.root, proxied.storage_options)
    step = write(store, options, batch, maps=1)
    costs = estimate(Shape(1, PARTITIONS, step.body.bytes, layout))
    writing = Counter(r.operation for r in proxy.requests if "/shuffle/" in r.path)
    large = {"CREATE_UPLOAD": 1, "PART": 3, "COMPLETE": 1}
    assert writing == ({"PUT": 2, **large} if layout == "packed" else {"PUT": 2 + PARTITIONS})
    assert costs.write_data == Requests(put=writing.total())
    proxy.forget()
    assert read(store, ReadOptions()) == costs.read_tasks
    reading = Counter(r.operation for r in proxy.requests if "/shuffle/" in r.path)
    assert reading == {"GET": costs.read_data.total}


def test_no_part_is_smaller_than_the_model_allows(root: str) -> None:
    batch = pa.record_batch({"k": pa.array([1], pa.int8())})
    store, options = Store(root), write_options(compression="zstd")
    job = WriteJob.of(
        prepare(store, options, batch.schema), Ledger(store).begin("append", "test"), options
    )
    output = write_attempt(store, job, 0, 1, [batch])
    step = commit_write(store, job, [output], None)
    assert step is not None and step.body.bytes >= LEAST_PART_BYTES
