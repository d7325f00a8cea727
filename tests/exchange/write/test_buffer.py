"""A write task's memory is bounded: rows beyond the limit are spilled to local disk."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from layouts import write_options

from ffq_spark.exchange.exchange import Exchange
from ffq_spark.exchange.write.buffer import PartitionBuffer
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.format import manifest
from ffq_spark.format.records import ExchangeRecord, QueryRecord
from ffq_spark.options import WriteOptions

KIB, MIB = 1 << 10, 1 << 20
SCHEMA = pa.schema([("k", pa.int64()), ("name", pa.string())])
OUTPUT_BATCH = 16 * MIB


@pytest.fixture(autouse=True)
def spill_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "spill"
    place.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{place},/nowhere")
    return place


def rows(count: int, seed: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield `count` rows with random keys, in batches of 1,000."""
    random = np.random.default_rng(seed)
    for start in range(0, count, 1000):
        keys = random.integers(0, 1 << 40, min(1000, count - start))
        names = [f"{key:x}" for key in keys]
        yield pa.record_batch([pa.array(keys), pa.array(names)], schema=SCHEMA)


def options(partitions: int, buffer: int, sort_by: tuple[str, ...] = ()) -> WriteOptions:
    return write_options(
        keys=("k",), partitions=partitions, max_buffer_bytes=buffer, sort_by=sort_by
    )


def job(chosen: WriteOptions) -> WriteJob:
    exchange = ExchangeRecord.of(SCHEMA, chosen.keys, chosen.partitions or 1)
    query = QueryRecord(query=1, initiator="me", stage=0, mode="append", created_at_ms=0)
    return WriteJob.of(exchange, query, chosen)


def sorted_rows(table: pa.Table) -> pa.Table:
    return table.sort_by([("k", "ascending"), ("name", "ascending")]).combine_chunks()


@pytest.mark.parametrize("sort_by", [(), ("name",)], ids=["unsorted", "sorted"])
@pytest.mark.parametrize("partitions", [1, 64, 4000])
def test_rows_that_were_spilled_come_back_exactly(
    root: str, partitions: int, sort_by: tuple[str, ...], spill_directory: Path
) -> None:
    write_batches(root, rows(20_000), options=options(partitions, 256 * KIB, sort_by))
    exchange = Exchange(root)
    read = exchange.read().read_all()
    assert sorted_rows(read).equals(sorted_rows(pa.Table.from_batches(rows(20_000))))
    parts = exchange.parts()
    # A large part has one more batch, which holds its column directory.
    directories = [size > 0 for size in parts["tail_bytes"].to_pylist()]
    assert parts["batches"].to_pylist() == [1 + has_one for has_one in directories]
    assert parts.num_rows == len(set(parts["reduce"].to_pylist())) <= partitions
    assert list(spill_directory.iterdir()) == []
    if sort_by:
        for reduce in parts["reduce"].to_pylist()[:20]:
            names = exchange.read(partitions=[reduce]).read_all()["name"].to_pylist()
            assert all(one <= two for one, two in pairwise(names))


def test_what_fits_into_memory_is_not_spilled_and_what_does_not_is() -> None:
    for buffer, spilled in ((64 * MIB, 0), (64 * KIB, 5)):
        buffered = PartitionBuffer(job(options(8, buffer)))
        for batch in rows(20_000):
            buffered.add(batch)
        buffered.finish()
        assert buffered.spilled == 0 if spilled == 0 else buffered.spilled >= spilled
        batches = [
            batch for reduce in buffered.reduces().tolist() for batch in buffered.part(reduce)
        ]
        assert sum(batch.num_rows for batch in batches) == 20_000
        buffered.close()


WRITE_AND_COUNT = """
import sys
import numpy as np, pyarrow as pa
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.options import WriteOptions

root, partitions, buffer, batches, *sort_by = sys.argv[1:]
text = pa.array([bytes(250)] * 4096)

def rows():
    for number in range(int(batches)):
        yield pa.record_batch({"k": pa.array(np.arange(4096) * 7919 + number), "text": text})

options = WriteOptions(keys=("k",), partitions=int(partitions), max_buffer_bytes=int(buffer),
                       sort_by=tuple(sort_by))
assert write_batches(root, rows(), options=options).body.rows == 4096 * int(batches)
print(pa.default_memory_pool().max_memory())
"""


@pytest.mark.parametrize("sort_by", [(), ("k",)], ids=["unsorted", "sorted"])
@pytest.mark.parametrize("partitions", [1, 64])
def test_memory_stays_within_the_limit_and_a_few_output_batches(
    root: str, partitions: int, sort_by: tuple[str, ...]
) -> None:
    """A separate process writes 200 MiB of rows with a buffer of 8 MiB; Arrow counts its memory."""
    numbers = [partitions, 8 * MIB, 200]
    arguments = [sys.executable, "-c", WRITE_AND_COUNT, root, *map(str, numbers), *sort_by]
    peak = int(subprocess.run(arguments, check=True, capture_output=True, text=True).stdout)
    assert peak < 8 * MIB + 7 * OUTPUT_BATCH


COUNT_RUNS = """
import sys
import numpy as np, pyarrow as pa
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.options import WriteOptions

root, kind, buffer = sys.argv[1], sys.argv[2], int(sys.argv[3])
random = np.random.default_rng(1)

def narrow():
    for _ in range(300):
        yield pa.record_batch({"k": pa.array(random.integers(0, 1 << 31, 1 << 16), pa.int32())})

def skewed():
    empty, wide = pa.array([b""] * 20_000), pa.array([bytes(100_000)] * 5)
    for number in range(150):
        yield pa.record_batch({"k": np.arange(20_000) + 20_000 * number, "v": empty})
        yield pa.record_batch({"k": np.ones(5, np.int64), "v": wide})

chosen = {"narrow": (narrow, 1, ("k",)), "skewed": (skewed, 200, ())}
batches, partitions, sort_by = chosen[kind]
options = WriteOptions(keys=("k",), partitions=partitions, max_buffer_bytes=buffer, sort_by=sort_by)
write_batches(root, batches(), options=options)
print(pa.default_memory_pool().max_memory())
"""


@pytest.mark.parametrize("kind", ["narrow", "skewed"])
def test_memory_stays_within_the_limit_whatever_the_width_of_rows(root: str, kind: str) -> None:
    """The rows are many narrow rows that are sorted, or a few wide rows that all have one key."""
    arguments = [sys.executable, "-c", COUNT_RUNS, root, kind, str(96 * MIB)]
    peak = int(subprocess.run(arguments, check=True, capture_output=True, text=True).stdout)
    assert peak < 96 * MIB * 1.5


@pytest.mark.parametrize("buffer", [64 * KIB, 64 * MIB])
def test_dictionaries_are_kept_as_their_values(root: str, buffer: int) -> None:
    """Each batch has its own dictionary, and parts combine rows of many batches."""
    batches = [
        pa.record_batch(
            {
                "k": pa.array(range(100 * number, 100 * number + 2000)),
                "v": pa.array([f"{number} {i % 7}" for i in range(2000)]).dictionary_encode(),
            }
        )
        for number in range(12)
    ]
    write_batches(root, batches, options=options(16, buffer))
    table = Exchange(root).read().read_all()
    assert table.schema.field("v").type == pa.string()
    expected = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    assert sorted(tuple(row.values()) for row in table.to_pylist()) == sorted(expected)


def test_a_column_that_begins_with_nulls_has_bounds(root: str) -> None:
    text = pa.array([bytes(250)] * 4096)
    values = [pa.nulls(4096, pa.int64())] * 4 + [pa.array(range(4096))] * 8
    batches = [pa.record_batch({"k": pa.array([1] * 4096), "v": v, "t": text}) for v in values]
    step = write_batches(root, batches, options=options(1, 256 * MIB))
    data = (Path(root) / step.body.manifest).read_bytes()
    (row,) = manifest.decode(data, step.body.manifest).to_pylist()
    assert row["stats"]["v"] == {"min": 0, "max": 4095, "nulls": 4 * 4096}


def test_a_write_that_fails_leaves_no_file_in_the_spill_directory(
    root: str, spill_directory: Path
) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from rows(10_000)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_batches(root, failing(), options=options(8, 64 * KIB))
    assert list(spill_directory.iterdir()) == []


def test_a_spill_file_has_no_name_while_it_is_used(spill_directory: Path) -> None:
    buffered = PartitionBuffer(job(options(8, 64 * KIB)))
    for batch in rows(10_000):
        buffered.add(batch)
        assert list(spill_directory.iterdir()) == []
    assert buffered.spilled > 0
    buffered.close()


def test_statistics_of_spilled_parts_are_those_of_their_rows(root: str) -> None:
    step = write_batches(root, rows(20_000), options=options(16, 64 * KIB))
    data = (Path(root) / step.body.manifest).read_bytes()
    for row in manifest.decode(data, step.body.manifest).to_pylist():
        keys = Exchange(root).read(partitions=[row["reduce"]]).read_all()["k"].to_pylist()
        assert row["stats"] == {"k": {"min": min(keys), "max": max(keys), "nulls": 0}}


def test_one_row_may_be_larger_than_the_buffer(root: str) -> None:
    texts = ["x" * (300 * KIB), "y", "z" * (300 * KIB)]
    batch = pa.record_batch({"k": [1, 2, 3], "text": texts})
    write_batches(root, [batch], options=options(2, 64 * KIB))
    table = Exchange(root).read().read_all().sort_by("k")
    assert table["text"].to_pylist() == texts
