"""`merge` and `mergeBy` return what a stable sort of a plain read returns, in bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from arrow_strategies import ORDERED, values
from hypothesis import given, settings
from hypothesis import strategies as st
from merge_scene import cells, expected, random_maps, write_maps

from ffq_spark import Exchange
from ffq_spark.errors import (
    BadOption,
    CorruptPart,
    FfqError,
    KeyColumnMissing,
    NotSorted,
    StepNotFound,
    UnknownOption,
)
from ffq_spark.exchange.read.bounded import MemoryLimits
from ffq_spark.exchange.read.sorted_read import read_sorted
from ffq_spark.exchange.scan.snapshot import take_snapshot
from ffq_spark.options import ReadOptions
from ffq_spark.store import Store


def rows_of(ids: list[int], ks: list[Any], kind: pa.DataType | None = None) -> pa.RecordBatch:
    # Equal rows of the order column have different texts, so that their places can be compared.
    texts = pa.array([f"{number}" for number in range(len(ids))], pa.string())
    columns = {"k": pa.array(ks, kind or pa.int64()), "id": pa.array(ids, pa.int64()), "t": texts}
    return pa.record_batch(columns)


def merged_rows(exchange: Exchange, by: list[str], **options: Any) -> list[str]:
    return cells(exchange.merge(by=by, **options).read_all())


@st.composite
def histories(draw: st.DrawFn) -> list[list[pa.RecordBatch]]:
    """Generate steps of map tasks; most values of the order column occur several times."""
    kind = draw(st.sampled_from(ORDERED))
    pool = [None, *draw(st.lists(values(kind), min_size=1, max_size=5))]
    steps = []
    for _ in range(draw(st.integers(1, 3))):
        maps = []
        for _ in range(draw(st.integers(1, 3))):
            ids = draw(st.lists(st.integers(0, 5), max_size=12))
            ks = draw(st.lists(st.sampled_from(pool), min_size=len(ids), max_size=len(ids)))
            maps.append(rows_of(ids, ks, kind))
        steps.append(maps)
    return steps


def check(steps: list[list[pa.RecordBatch]], layout: str, codec: str, verify: str) -> None:
    root = f"memory://{uuid.uuid4().hex}"
    for maps in steps:
        exchange = write_maps(root, maps, layout=layout, compression=codec)
    choices: list[dict[str, Any]] = [
        {},
        {"columns": ["t"]},
        {"columns": ["t", "k"], "metadata_columns": True},
        {"partitions": [0, 3]},
        {"steps": f"{len(steps)}"},
        {"as_of_step": 1},
    ]
    for choice in choices:
        for by in (["k"], ["k", "id"]):
            options = {"verify": verify, **choice}
            assert merged_rows(exchange, by, **options) == cells(
                expected(exchange, by, **options)
            ), (choice, by)
    # The same through local disk, and within the limits of a reader of the service.
    store, chosen = Store(root), ReadOptions(merge_by=("k",))
    snapshot = take_snapshot(store, chosen)
    schema, parts = snapshot.exchange.schema, snapshot.parts()
    wanted = cells(expected(exchange, ["k"]))
    for limits in (None, MemoryLimits(1 << 8)):
        batches = read_sorted(store, parts, schema, ("k",), chosen, limits=limits, in_memory=64)
        got = cells(pa.Table.from_batches(batches, schema))
        # Within limits, parts are read in the order of their files.
        assert (sorted(got) == sorted(wanted)) if limits else (got == wanted)
        ks = [row.split(",")[0] for row in got]
        assert ks == [row.split(",")[0] for row in wanted]


@pytest.mark.parametrize("layout", ["parts", "packed"])
@settings(max_examples=25)
@given(
    steps=histories(),
    codec=st.sampled_from(["none", "zstd"]),
    verify=st.sampled_from(["full", "counts", "none"]),
)
def test_a_merge_is_a_stable_sort_of_a_plain_read(
    steps: list[list[pa.RecordBatch]], layout: str, codec: str, verify: str
) -> None:
    check(steps, layout, codec, verify)


@pytest.mark.soak
@pytest.mark.parametrize("layout", ["parts", "packed"])
@settings(max_examples=400)
@given(
    steps=histories(),
    codec=st.sampled_from(["none", "zstd"]),
    verify=st.sampled_from(["full", "counts", "none"]),
)
def test_a_merge_is_a_stable_sort_of_a_plain_read_400_times(
    steps: list[list[pa.RecordBatch]], layout: str, codec: str, verify: str
) -> None:
    check(steps, layout, codec, verify)


def test_texts_of_any_bytes_come_in_the_order_of_their_bytes(root: str) -> None:
    texts: list[Any] = [b"\xff", b"a", None, b"\xc3\xa9", b"", b"\xed\xa0\x80", b"a\0"]
    column = pa.array(texts, pa.binary()).view(pa.string())
    batch = pa.record_batch({"k": column, "id": list(range(7)), "t": ["t"] * 7})
    exchange = write_maps(root, [batch.slice(0, 4), batch.slice(4)])
    merged = exchange.merge(by="k", columns="k").read_all()["k"]
    read = [value for chunk in merged.chunks for value in chunk.view(pa.binary()).to_pylist()]
    assert read == [None, *sorted(text for text in texts if text is not None)]


def test_a_merge_sees_what_a_snapshot_sees(root: str) -> None:
    """Replaced steps, steps without rows and rollbacks change what is merged, and nothing else."""
    unsorted = write_maps(root, [rows_of([1, 2], [5, 4])], sort_by=())
    with pytest.raises(NotSorted, match="step 1 is not sorted, and mergeBy is k"):
        unsorted.merge(by="k")
    write_maps(root, [rows_of([3, 4], [8, None])], mode="replace")
    write_maps(root, [rows_of([], [])], sort_by=())
    exchange = write_maps(root, [rows_of([5, 6], [7, 9])])
    assert exchange.merge(by="k").read_all()["k"].to_pylist() == [None, 7, 8, 9]
    assert exchange.merge(by="k", as_of_step=3).read_all()["k"].to_pylist() == [None, 8]
    assert exchange.merge(by="k", steps="3").read_all().num_rows == 0
    assert exchange.rollback(2).step == 5
    assert exchange.merge(by="k").read_all()["k"].to_pylist() == [None, 8]
    exchange.rollback(1)
    with pytest.raises(NotSorted, match="step 1 is not sorted"):
        exchange.merge(by="k")
    assert exchange.merge(by=["k"], steps="2..5").read_all()["k"].to_pylist() == [None, 7, 8, 9]


def test_the_first_step_of_another_order_is_named(root: str) -> None:
    for order in (("k", "id"), ("k", "t"), ("k",)):
        exchange = write_maps(root, [rows_of([1], [1])], sort_by=order)
    assert exchange.merge(by="k").read_all().num_rows == 3
    with pytest.raises(NotSorted) as caught:
        exchange.merge(by="k,id")
    message = "step 2 is sorted by k, t, and mergeBy is k, id (option mergeBy)"
    assert message in str(caught.value)
    assert "sortBy" in caught.value.remedy
    with pytest.raises(NotSorted, match="step 1 is sorted by k, id"):
        exchange.merge(by="id")
    # A step that is left out need not be sorted.
    assert exchange.merge(by="k,t", steps="2").read_all().num_rows == 1


@pytest.mark.parametrize(
    "options, error",
    [
        ({"by": "missing"}, KeyColumnMissing),
        ({"by": ()}, BadOption),
        ({"by": None}, BadOption),
        ({"by": "k,k"}, BadOption),
        ({"by": "k", "as_of_step": 7}, StepNotFound),
        ({"by": "k", "order": "k"}, UnknownOption),
    ],
)
def test_wrong_options_are_refused(
    root: str, options: dict[str, Any], error: type[FfqError]
) -> None:
    exchange = write_maps(root, [rows_of([1], [1])])
    with pytest.raises(error):
        exchange.merge(**options)


def test_consolidated_rows_and_a_querys_output_are_not_merged(root: str) -> None:
    batch = rows_of([1, 2], [3, 1]).append_column("w", pa.array([1, 1]))
    exchange = write_maps(root, [batch], weight_column="w")
    assert exchange.merge(by="k").read_all()["w"].to_pylist() == [1, 1]
    with pytest.raises(BadOption, match="leave mergeBy out"):
        exchange.merge(by="k", consolidate=True)
    with pytest.raises(NotSorted, match="only steps of the log record"):
        exchange.merge(by="k", query=exchange.steps()[0].body.query)


def test_a_key_is_looked_up_in_order(root: str) -> None:
    exchange = write_maps(root, [rows_of([1, 1, 2], [3, 1, 2]), rows_of([1, 2], [2, 2])])
    assert exchange.lookup(1, merge_by="k")["k"].to_pylist() == [1, 2, 3]


@pytest.mark.parametrize("verify", ["full", "counts"])
def test_damage_is_found_before_the_first_row(root: str, verify: str) -> None:
    exchange = write_maps(root, [rows_of(list(range(50)), list(range(50)))])
    file = Path(root) / exchange.parts().to_pylist()[-1]["file"]
    data = bytearray(file.read_bytes())
    if verify == "full":
        data[-20] ^= 1
    else:
        del data[-20:]
    file.write_bytes(data)
    with pytest.raises(CorruptPart):
        exchange.merge(by="k", verify=verify).read_next_batch()


def test_the_parts_of_a_merge_are_requested_within_the_credits(place: Any) -> None:
    from ffq_spark.exchange.write.local_write import write_batches
    from ffq_spark.options import WriteOptions
    from ffq_spark.store import ReadTotals

    options = WriteOptions(keys=("id",), partitions=8, sort_by=("k",))
    for batch in random_maps(20_000, 2):
        write_batches(place.root, [batch], options=options, storage_options=place.storage_options)
    exchange, totals = Exchange(place.root, place.storage_options), ReadTotals()
    reader = exchange.read(merge_by="k", columns=["k"], credits=1 << 16, totals=totals)
    ks = reader.read_all()["k"].to_pylist()
    assert len(ks) == 20_000
    assert all(one <= two for one, two in pairwise(ks))
    # A range that is larger than the credits is fetched alone.
    assert totals.peak_bytes <= max(1 << 16, *exchange.parts()["bytes"].to_pylist())


_MEASURE = """
import json, sys
from pathlib import Path
from ffq_spark.exchange.read.sorted_read import read_sorted
from ffq_spark.exchange.scan.snapshot import take_snapshot
from ffq_spark.options import ReadOptions
from ffq_spark.store import Store

def resident(what):
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{what}:")[1].split()[0]) * 1024

root, in_memory = sys.argv[1], int(sys.argv[2])
store, options = Store(root), ReadOptions(merge_by=("k",), credits=8 << 20)
snapshot = take_snapshot(store, options)
schema, parts = snapshot.exchange.schema, snapshot.parts()
for batch in read_sorted(store, parts.slice(0, 1), schema, ("k",), options):
    pass
before = resident("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
rows, last, is_sorted = 0, -1, True
for batch in read_sorted(store, parts, schema, ("k",), options, in_memory=in_memory):
    ks = batch["k"].to_numpy()
    is_sorted = is_sorted and last <= ks[0] and bool((ks[1:] >= ks[:-1]).all())
    rows, last = rows + len(ks), ks[-1]
print(json.dumps({"rows": rows, "sorted": is_sorted, "peak": resident("VmHWM") - before,
                  "bytes": sum(parts["bytes"].to_pylist())}))
"""


def measure(root: str, rows: int, partitions: int, maps: int, in_memory: int) -> dict[str, Any]:
    """Merge an exchange in a process of its own, and return its rows and its peak memory."""
    write_maps(root, random_maps(rows, maps), partitions=partitions, compression="lz4")
    command = [sys.executable, "-c", _MEASURE, root, str(in_memory)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    print(result)
    return result


def test_a_merge_needs_a_fraction_of_the_memory_of_its_rows(root: str) -> None:
    result = measure(root, 1_600_000, partitions=16, maps=8, in_memory=1 << 20)
    assert (result["rows"], result["sorted"]) == (1_600_000, True)
    assert result["bytes"] > 50 << 20
    assert result["peak"] < 40 << 20


@pytest.mark.soak
def test_a_merge_of_1024_runs_needs_little_memory(root: str) -> None:
    result = measure(root, 16_000_000, partitions=64, maps=16, in_memory=16 << 20)
    assert (result["rows"], result["sorted"]) == (16_000_000, True)
    assert result["bytes"] > 500 << 20
    assert result["peak"] < 128 << 20
