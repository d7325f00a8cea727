"""Any number of sorted parts are read as one sorted stream, from memory or from disk."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layouts import write_options

from ffq_spark.errors import CorruptPart
from ffq_spark.exchange.read.sorted_read import read_sorted
from ffq_spark.exchange.scan.partitioning import sorted_by
from ffq_spark.exchange.scan.snapshot import take_snapshot
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.format.ordering import sort_indices
from ffq_spark.options import ReadOptions
from ffq_spark.store import Store

VALUES: dict[str, Callable[[int], Any]] = {
    "integers": lambda n: (n * 37) % 50,
    "nulls": lambda n: None if n % 5 == 0 else (n * 37) % 50,
    "strings": lambda n: None if n % 7 == 0 else f"é{(n * 37) % 50}",
    "floats": lambda n: [None, float("nan"), -0.0, 0.0, 1.5, float("-inf")][n % 6],
}


def new_root() -> str:
    return f"memory://{uuid.uuid4().hex}"


def written(root: str, steps: list[list[int]], kind: str, **options: Any) -> Store:
    for numbers in steps:
        values = [VALUES[kind](n) for n in numbers]
        types = {"floats": pa.float64(), "strings": pa.string()}
        columns = {"k": pa.array(values, types.get(kind, pa.int64())), "n": pa.array(numbers)}
        batches = pa.table(columns).to_batches(max_chunksize=40)
        chosen = {"sort_by": ("k", "n"), **options}
        write_batches(root, batches, options=write_options(keys=("n",), partitions=1, **chosen))
    return Store(root)


def merged_rows(store: Store, in_memory: int, columns: list[str]) -> pa.Table:
    options = ReadOptions()
    snapshot = take_snapshot(store, options)
    schema = pa.schema([snapshot.exchange.schema.field(name) for name in columns])
    batches = list(
        read_sorted(
            store,
            snapshot.parts(),
            snapshot.exchange.schema,
            sorted_by(snapshot, options),
            options,
            output=schema,
            in_memory=in_memory,
        )
    )
    return pa.Table.from_batches(batches, schema).combine_chunks()


@pytest.mark.parametrize("in_memory", [1 << 30, 0], ids=["memory", "disk"])
@pytest.mark.parametrize("kind", VALUES)
@settings(max_examples=8)
@given(lengths=st.lists(st.integers(1, 120), min_size=1, max_size=5))
def test_parts_are_merged_in_order(kind: str, in_memory: int, lengths: list[int]) -> None:
    bounds = [0, *np.cumsum(lengths).tolist()]
    steps = [list(range(a, b)) for a, b in pairwise(bounds)]
    store = written(new_root(), steps, kind)
    whole = merged_rows(store, in_memory, ["n", "k"])
    order = sort_indices([whole["k"].combine_chunks(), whole["n"].combine_chunks()])
    assert order.to_pylist() == list(range(whole.num_rows))
    assert sorted(whole["n"].to_pylist()) == list(range(bounds[-1]))
    assert merged_rows(store, in_memory, ["n"])["n"].to_pylist() == whole["n"].to_pylist()


def test_the_order_is_what_all_steps_have_in_common() -> None:
    options = ReadOptions()
    root = new_root()
    for order, common in ((("k", "n"), ("k", "n")), (("k",), ("k",)), (("n", "k"), ())):
        store = written(root, [[1, 2, 3]], "integers", sort_by=order)
        assert sorted_by(take_snapshot(store, options), options) == common
    store = written(root, [[4]], "integers", sort_by=())
    assert sorted_by(take_snapshot(store, options), options) == ()


@pytest.mark.parametrize("in_memory", [1 << 30, 0], ids=["memory", "disk"])
def test_damage_is_found_before_a_row_is_given(in_memory: int) -> None:
    store = written(new_root(), [list(range(100)), list(range(100, 300))], "integers")
    (first, *_) = take_snapshot(store, ReadOptions()).parts().to_pylist()
    data = bytearray(store.read(first["file"]))
    data[first["offset"] + first["bytes"] - 100] ^= 1
    store.replace(first["file"], bytes(data))
    with pytest.raises(CorruptPart):
        merged_rows(store, in_memory, ["k"])
