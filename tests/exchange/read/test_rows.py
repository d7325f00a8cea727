"""Z-sets in an exchange: a consolidated read returns each row with the sum of its weights."""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layouts import write_options

from ffq_spark import Exchange
from ffq_spark.errors import (
    BadOption,
    CorruptPart,
    ExchangeMismatch,
    KeyColumnMissing,
    UnsupportedType,
)
from ffq_spark.exchange.compute.planner import plan
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.write.attempt_writer import write_attempt
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.exchange.write.map_outputs import examine
from ffq_spark.exchange.write.prepare import prepare
from ffq_spark.format.hashing import partition_ids
from ffq_spark.options import WriteOptions
from ffq_spark.store import Store

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string()), ("w", pa.int64())])
OPTIONS = write_options(keys=("k",), partitions=3, weight_column="w")


def write(root: str, rows: list[tuple[Any, ...]], options: WriteOptions = OPTIONS) -> None:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
    write_batches(root, [pa.record_batch(columns, schema=SCHEMA)], options=options)


row = st.tuples(st.integers(0, 4), st.sampled_from(["a", "b", None]), st.integers(-2, 2))
histories = st.lists(st.lists(row, max_size=12), min_size=1, max_size=4)


@settings(max_examples=60)
@given(histories)
def test_steps_amount_to_the_sum_of_their_weights(steps: list[list[Any]]) -> None:
    check(steps)


@pytest.mark.soak
@settings(max_examples=500)
@given(histories)
def test_steps_amount_to_the_sum_of_their_weights_500_times(steps: list[list[Any]]) -> None:
    check(steps)


def check(steps: list[list[Any]]) -> None:
    root = f"memory://{uuid.uuid4().hex}"
    total: Counter[tuple[Any, ...]] = Counter()
    for step in steps:
        write(root, step)
        for k, v, w in step:
            total[k, v] += w
    expected = {key: w for key, w in total.items() if w}
    exchange = Exchange(root)
    sums = exchange.read(consolidate=True).read_all()
    assert sums.schema == SCHEMA
    assert {(r["k"], r["v"]): r["w"] for r in sums.to_pylist()} == expected
    assert sums.num_rows == len(expected)
    some = exchange.read(consolidate=True, columns=["w", "k"]).read_all()
    assert sorted(some.to_pylist(), key=str) == sorted(
        ({"w": w, "k": key[0]} for key, w in expected.items()), key=str
    )
    for k in range(5):
        rows = exchange.lookup(k, consolidate=True).to_pylist()
        assert {(r["k"], r["v"]): r["w"] for r in rows} == {
            key: w for key, w in expected.items() if key[0] == k
        }


def floats(bits: int, *patterns: int) -> pa.Array:
    """Make floats from bits, because pyarrow and Python would make all NaNs equal."""
    values = np.array(patterns, f"u{bits // 8}").view(f"f{bits // 8}")
    return pa.array(values)


ZEROS_AND_NANS = {
    32: (0, 1 << 31, 0x7FC00000, 0xFFC00000, 0x7FC00001, 0x3F800000),
    64: (0, 1 << 63, 0x7FF8 << 48, 0xFFF8 << 48, (0x7FF8 << 48) + 1, 0x3FF0 << 48),
}


def key_column(bits: int, form: str) -> pa.Array:
    column = floats(bits, *ZEROS_AND_NANS[bits])
    if form == "struct":
        return pa.StructArray.from_arrays([column], ["f"])
    return pa.ListArray.from_arrays(list(range(7)), column) if form == "list" else column


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize(
    ("hash", "form"),
    [("spark", "float"), ("spark", "struct"), ("spark", "list"), ("ffq", "float")],
)
def test_float_keys_that_are_equal_meet_whatever_their_bits(
    root: str, hash: str, form: str, bits: int
) -> None:
    """0.0 and -0.0 are one key, all NaNs are another, and 1.0 is a third."""
    column = key_column(bits, form)
    batch = pa.record_batch({"k": column, "w": [1, -1, 2, -1, -1, 1]})
    options = write_options(keys=("k",), partitions=64, hash=hash, weight_column="w")
    write_batches(root, [batch], options=options)
    exchange = Exchange(root)
    sums = exchange.read(consolidate=True).read_all()
    assert sums["w"].to_pylist() == [1] and sums["k"].to_pylist() == column[5:].to_pylist()
    assert exchange.verify().ok and exchange.read().read_all().num_rows == 6
    if form == "float":
        for key, rows in ((0.0, 2), (-0.0, 2), (float("nan"), 3), (1.0, 1)):
            assert exchange.lookup(key).num_rows == rows
            assert exchange.lookup(key, consolidate=True).num_rows == (key == 1)


def test_ffq_places_the_rows_of_other_exchanges_by_their_bits(root: str) -> None:
    batch = pa.record_batch({"k": key_column(64, "float")})
    options = write_options(keys=("k",), partitions=64, hash="ffq")
    write_batches(root, [batch], options=options)
    table = Exchange(root).read(metadata_columns=True).read_all()
    places = partition_ids([table["k"].combine_chunks()], 64, "ffq").tolist()
    assert table["_ffq_partition"].to_pylist() == places and len(set(places)) == 6
    assert Exchange(root).verify().ok
    assert [Exchange(root).lookup(key).num_rows for key in (0.0, -0.0, float("nan"))] == [2, 2, 3]


def test_rows_of_a_z_set_that_lie_apart_are_found(root: str) -> None:
    """FFQ's own writers place floats by their bits, so their attempts are refused in a Z-set."""
    batch = pa.record_batch({"k": key_column(64, "float"), "w": [1] * 6})
    options = write_options(keys=("k",), partitions=64, hash="ffq", weight_column="w")
    store = Store(root)
    exchange = prepare(store, options, batch.schema)
    query = Ledger(store).begin("append", "me")
    job = WriteJob.of(exchange, query, options)
    apart = replace(job, exchange=replace(exchange, weight=None))
    output = write_attempt(store, apart, 0, 1, [batch])
    with pytest.raises(CorruptPart, match="belong to another partition"):
        examine(store, job, output.id)
    Ledger(store).commit(query, exchange, [output], job.stats_fields)
    findings = Exchange(root).verify().findings
    assert len(findings) == 3 and "another partition" in findings[0].message


def test_what_cannot_be_a_weight_is_refused(root: str) -> None:
    for name, error in (("x", KeyColumnMissing), ("v", UnsupportedType), ("k", BadOption)):
        with pytest.raises(error):
            write(root, [], write_options(keys=("k",), partitions=3, weight_column=name))
    with pytest.raises(ExchangeMismatch, match="no weight"):
        write(root, [(1, "a", None)])
    write(root, [(1, "a", 1)], write_options(keys=("k",), partitions=3))
    with pytest.raises(BadOption, match="without a weightColumn"):
        Exchange(root).read(consolidate=True)
    with pytest.raises(ExchangeMismatch, match="weight"):
        write(root, [(1, "a", 1)])


def test_later_writes_take_the_weight_of_the_exchange(root: str) -> None:
    write(root, [(1, "a", 2)])
    write(root, [(1, "a", -2)], write_options())
    assert Exchange(root).read(consolidate=True).read_all().num_rows == 0
    assert Exchange(root).read().read_all().num_rows == 2
    with pytest.raises(BadOption, match="metadataColumns"):
        Exchange(root).read(consolidate=True, metadata_columns=True)


def test_a_partition_that_is_consolidated_stays_whole() -> None:
    sizes = {0: 10, 1: 1000, 2: 10}
    assert any(group.shards > 1 for group in plan(sizes, 100))
    whole = plan(sizes, 100, pieces=dict.fromkeys(sizes, 1))
    assert [group.partitions for group in whole] == [(0,), (1,), (2,)]
    assert all(group.shards == 1 for group in whole)
