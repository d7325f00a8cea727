"""Z-sets in an exchange: what is read is what the weights amount to."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ffq_spark import Exchange
from ffq_spark.errors import (
    BadOption,
    ExchangeMismatch,
    KeyColumnMissing,
    UnsupportedType,
)
from ffq_spark.exchange.planner import plan
from ffq_spark.exchange.write import write_batches
from ffq_spark.options import WriteOptions

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string()), ("w", pa.int64())])
OPTIONS = WriteOptions(keys=("k",), partitions=3, weight_column="w")


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
    found = exchange.read(consolidate=True).read_all()
    assert found.schema == SCHEMA
    assert {(r["k"], r["v"]): r["w"] for r in found.to_pylist()} == expected
    assert found.num_rows == len(expected)
    some = exchange.read(consolidate=True, columns=["w", "k"]).read_all()
    assert sorted(some.to_pylist(), key=str) == sorted(
        ({"w": w, "k": key[0]} for key, w in expected.items()), key=str
    )
    for k in range(5):
        rows = exchange.lookup(k, consolidate=True).to_pylist()
        assert {(r["k"], r["v"]): r["w"] for r in rows} == {
            key: w for key, w in expected.items() if key[0] == k
        }


def test_what_cannot_be_a_weight_is_refused(root: str) -> None:
    for name, error in (("x", KeyColumnMissing), ("v", UnsupportedType), ("k", BadOption)):
        with pytest.raises(error):
            write(root, [], WriteOptions(keys=("k",), partitions=3, weight_column=name))
    with pytest.raises(ExchangeMismatch, match="no weight"):
        write(root, [(1, "a", None)])
    write(root, [(1, "a", 1)], WriteOptions(keys=("k",), partitions=3))
    with pytest.raises(BadOption, match="without a weightColumn"):
        Exchange(root).read(consolidate=True)
    with pytest.raises(ExchangeMismatch, match="weight"):
        write(root, [(1, "a", 1)])


def test_later_writes_take_the_weight_of_the_exchange(root: str) -> None:
    write(root, [(1, "a", 2)])
    write(root, [(1, "a", -2)], WriteOptions())
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
