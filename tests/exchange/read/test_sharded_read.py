"""The tasks of a read return each row once, however a heavy partition is divided."""

from __future__ import annotations

import shutil
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layouts import write_options

from ffq_spark import Exchange
from ffq_spark.errors import BadOption
from ffq_spark.exchange.compute.hash_shards import HashShard
from ffq_spark.exchange.compute.keys import key_predicates
from ffq_spark.exchange.read.bounded import MemoryLimits
from ffq_spark.exchange.read.row_shape import output_schema
from ffq_spark.exchange.read.rows import read_rows
from ffq_spark.exchange.scan.snapshot import take_snapshot
from ffq_spark.exchange.scan.tasks import read_tasks
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.options import ReadOptions
from ffq_spark.store import Store

SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.string()), ("v", pa.int64()), ("w", pa.int64())])
LIMITS = MemoryLimits(1 << 10)

row = st.tuples(
    st.integers(0, 9) | st.none(),
    st.sampled_from(["a", "b", None]),
    st.integers(0, 2),
    st.sampled_from([-1, 1]),
)
histories = st.lists(st.lists(row, min_size=1, max_size=30), min_size=1, max_size=4)


def write(root: str, rows: list[Any], **options: Any) -> None:
    columns = [list(column) for column in zip(*rows, strict=True)]
    given = {"keys": ("k", "j"), "partitions": 3, **options}
    write_batches(root, [pa.record_batch(columns, schema=SCHEMA)], options=write_options(**given))


def by_task(root: str, limits: MemoryLimits | None = None, **options: Any) -> list[pa.Table]:
    """Read the rows of each task of a read that has as many tasks as the option `split` allows."""
    read = ReadOptions.of_python({"target_partition_bytes": 1, **options})
    store = Store(root)
    snapshot = take_snapshot(store, read)
    output = output_schema(snapshot.exchange.schema, read)
    tables = []
    listed = snapshot.parts(partitions=read.partitions)
    for task in read_tasks(listed, read, snapshot.exchange.partitions):
        parts = pa.Table.from_batches([task.parts])
        rows = read_rows(
            store, parts, snapshot.exchange, read, output, shard=task.kept, limits=limits
        )
        tables.append(pa.Table.from_batches(rows, output))
    return tables


def counted(*tables: pa.Table) -> Counter[Any]:
    return Counter(tuple(row.values()) for table in tables for row in table.to_pylist())


@settings(max_examples=40)
@given(
    histories,
    st.sampled_from(["never", "hash", "map"]),
    st.sampled_from(["spark", "ffq"]),
    st.sampled_from(["parts", "packed"]),
    st.sampled_from([None, LIMITS]),
)
def test_the_rows_of_all_tasks_are_the_rows_of_the_exchange(
    steps: list[Any], split: str, hash: str, layout: str, limits: MemoryLimits | None
) -> None:
    root = f"memory://{uuid.uuid4().hex}"
    for rows, partitions in zip(steps, (2, 6, 9, 1), strict=False):
        write(root, rows, hash=hash, layout=layout)
        Exchange(root).rescale(partitions)
    tasks = by_task(root, limits, split=split)
    assert counted(*tasks) == counted(Exchange(root).read().read_all())
    again = by_task(root, limits, split=split)
    assert all(one.equals(other) for one, other in zip(tasks, again, strict=True))
    if split != "map":
        owners = [set(zip(*(t[key].to_pylist() for key in "kj"), strict=True)) for t in tasks]
        assert sum(map(len, owners)) == len(set().union(*owners))
    wanted: dict[str, Any] = {"columns": ["v"], "metadata_columns": True}
    some = by_task(root, limits, split=split, **wanted)
    assert some[0].schema.names[0] == "v" and not {"k", "j"} & set(some[0].schema.names)
    assert counted(*some) == counted(Exchange(root).read(**wanted).read_all())


@settings(max_examples=40)
@given(histories, st.sampled_from(["never", "hash", "map"]), st.sampled_from(["spark", "ffq"]))
def test_the_sums_of_a_z_set_are_those_of_one_task(steps: list[Any], split: str, hash: str) -> None:
    """`map` would return partial sums, so it divides no partition here."""
    root = f"memory://{uuid.uuid4().hex}"
    for rows in steps:
        write(root, rows, hash=hash, weight_column="w")
        Exchange(root).rescale(6)
    whole = Exchange(root).read(consolidate=True).read_all()
    tasks = by_task(root, split=split, consolidate=True)
    assert counted(*tasks) == counted(whole)
    assert split == "hash" or len(tasks) <= 3
    some = by_task(root, split=split, consolidate=True, columns=["v", "w"])
    assert counted(*some) == counted(whole.select(["v", "w"]))


@pytest.fixture
def skewed(root: str) -> str:
    write(root, [(k % 50, "a", k, 1) for k in range(500)], partitions=1)
    return root


def test_every_shard_of_a_heavy_partition_has_rows(skewed: str) -> None:
    tasks = by_task(skewed, split="hash", max_tasks=4)
    assert len(tasks) == 4 and all(task.num_rows for task in tasks)
    assert len(by_task(skewed, split="map")) == 1


def test_rows_are_hashed_with_the_types_in_which_they_were_written(skewed: str) -> None:
    """Spark may ask for another type, whose values have other hashes."""
    snapshot = take_snapshot(Store(skewed), ReadOptions())
    output = pa.schema([("v", pa.int64()), ("k", pa.int32())])
    read = [
        pa.Table.from_batches(
            read_rows(
                snapshot.store, snapshot.parts(), snapshot.exchange, ReadOptions(), output, shard=s
            ),
            output,
        )
        for s in (HashShard(n, 4) for n in range(4))
    ]
    keys = [set(table["k"].to_pylist()) for table in by_task(skewed, split="hash", max_tasks=4)]
    assert [set(table["k"].to_pylist()) for table in read] == keys
    assert read[0].schema == output


def test_a_read_without_columns_still_counts_rows(skewed: str) -> None:
    snapshot = take_snapshot(Store(skewed), ReadOptions())
    parts, exchange = snapshot.parts(), snapshot.exchange
    counts = [
        sum(
            batch.num_rows
            for batch in read_rows(
                snapshot.store, parts, exchange, ReadOptions(), pa.schema([]), shard=HashShard(n, 3)
            )
        )
        for n in range(3)
    ]
    assert sum(counts) == 500 and min(counts) > 0


def test_a_look_up_has_rows_in_one_shard(skewed: str) -> None:
    snapshot = take_snapshot(Store(skewed), ReadOptions())
    parts, exchange = snapshot.parts(), snapshot.exchange
    equal = key_predicates(exchange, (7, "a"))
    output = pa.schema([("v", pa.int64())])
    found = [
        pa.Table.from_batches(
            read_rows(
                *(snapshot.store, parts, exchange, ReadOptions(), output),
                equal=equal,
                shard=HashShard(n, 3),
            ),
            output,
        )["v"].to_pylist()
        for n in range(3)
    ]
    assert sorted(map(len, found)) == [0, 0, 10]


def test_a_damaged_part_is_an_error_in_every_shard(skewed: str) -> None:
    part = Path(skewed, Exchange(skewed).parts()["file"][0].as_py())
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    with pytest.raises(Exception, match="FFQ_CORRUPT_PART"):
        by_task(skewed, split="hash", max_tasks=4)


def test_a_read_by_hash_needs_keys(skewed: str, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(Path(skewed, "shuffle"), bare / "shuffle")
    loose = str(tmp_path / "loose")
    write(loose, [(1, "a", 1, 1)], keys=(), partitions=1)
    for root in (str(bare), loose):
        with pytest.raises(BadOption, match=r"no keys .* split=map or split=never"):
            Exchange(root).read(split="hash")
        assert sum(task.num_rows for task in by_task(root, split="map")) > 0
