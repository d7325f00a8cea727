"""Any rows of Spark's types are read as they were written, with any write options."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from arrow_strategies import (
    FFQ_KEYS,
    ORDERED,
    SORTABLE,
    cells,
    contains_map,
    kinds,
    order_key,
    row_keys,
    texts,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from layouts import write_options

from ffq_spark.errors import BadOption, ExchangeMismatch, ExchangeNotFound
from ffq_spark.exchange.exchange import Exchange
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.format.hashing import partition_ids
from ffq_spark.options import WriteOptions

KIB = 1 << 10


@dataclass(frozen=True)
class Write:
    """One write: its batches, its options, and keys to look up."""

    batches: list[pa.RecordBatch]
    options: WriteOptions
    keys: list[Any]

    @property
    def table(self) -> pa.Table:
        return pa.Table.from_batches(self.batches)


@st.composite
def pools(draw: st.DrawFn) -> pa.RecordBatch:
    """Generate a few different rows of a random schema."""
    columns = [draw(kinds()) for _ in range(draw(st.integers(1, 4)))]
    count = draw(st.integers(1, 8))
    arrays = [
        pa.array(draw(st.lists(cells(kind), min_size=count, max_size=count)), kind)
        for kind in columns
    ]
    return pa.record_batch(arrays, names=[f"c{i}" for i in range(len(columns))])


@st.composite
def batch_lists(draw: st.DrawFn, pool: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Generate batches of the pool's rows: some are empty, some large enough to spill."""
    sizes = draw(st.lists(st.sampled_from([0, 1, 5, 30, 1500, 3000]), min_size=1, max_size=3))
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    return [pool.take(pa.array(random.integers(0, len(pool), size))) for size in sizes]


def some(draw: st.DrawFn, names: list[str]) -> tuple[str, ...]:
    """Choose up to two of the names, most often one."""
    count = draw(st.sampled_from([0, 1, 1, 2]))
    return tuple(draw(st.permutations(names))[:count])


@st.composite
def writes(draw: st.DrawFn) -> Write:
    pool = draw(pools())
    types = {field.name: field.type for field in pool.schema}
    hash = draw(st.sampled_from(["spark", "spark", "ffq"]))
    hashable = [
        name
        for name, kind in types.items()
        if (kind in FFQ_KEYS if hash == "ffq" else not contains_map(kind))
    ]
    keys = some(draw, hashable)
    ordered = [name for name, kind in types.items() if kind in ORDERED]
    statistics = draw(st.sampled_from(["auto", "all", "none", "names"]))
    options = write_options(
        keys=keys,
        partitions=draw(st.sampled_from([1, 2, 7, 64])) if keys else 1,
        hash=hash,
        layout=draw(st.sampled_from(["parts", "packed"])),
        payload=draw(st.sampled_from(["arrow", "ffqs"])),
        compression=draw(st.sampled_from(["none", "lz4", "zstd"])),
        sort_by=some(draw, [name for name, kind in types.items() if kind in SORTABLE]),
        statistics=(some(draw, ordered) or ("none",)) if statistics == "names"
        else (statistics,),
        max_buffer_bytes=draw(st.sampled_from([64 * KIB, 64 * KIB, 200 * KIB, 1024 * KIB])),
    )  # fmt: skip
    lookups = []
    if keys and not any(pa.types.is_nested(types[name]) for name in keys):
        lookups = [tuple(row[name] for name in keys) for row in pool.to_pylist()[:2]]
        lookups.append(tuple(draw(cells(types[name])) for name in keys))
    return Write(draw(batch_lists(pool)), options, lookups)


def equal(one: Any, two: Any) -> bool:
    """Compare values as Spark groups them: null equals null, NaN equals NaN, -0.0 equals 0.0."""
    return order_key(one) == order_key(two)


def check(write: Write) -> None:
    with tempfile.TemporaryDirectory(prefix="ffq-roundtrip-") as root:
        step = write_batches(root, write.batches, options=write.options)
        exchange, table = Exchange(root), write.table
        assert step.body.rows == table.num_rows
        read = exchange.read().read_all()
        assert read.schema == table.schema
        assert Counter(texts(read)) == Counter(texts(table))
        check_parts(exchange, write.options)
        for key in write.keys:
            check_lookup(exchange, table, write.options.keys, key)


def check_parts(exchange: Exchange, options: WriteOptions) -> None:
    """Check that each partition holds the rows of its hash, in the requested order."""
    rows = exchange.read(metadata_columns=True).read_all()
    reduces = rows["_ffq_partition"].to_numpy()
    assert np.array_equal(reduces, np.sort(reduces))
    if options.keys:
        keys = [rows[name].combine_chunks() for name in options.keys]
        ids = partition_ids(keys, options.partitions or 1, options.hash)
        assert np.array_equal(ids, reduces)
    if options.sort_by:
        order = row_keys(rows, ("_ffq_partition", *options.sort_by))
        assert all(a <= b for a, b in pairwise(order))


def check_lookup(
    exchange: Exchange, table: pa.Table, names: tuple[str, ...], key: tuple[Any, ...]
) -> None:
    columns = [table[name].to_pylist() for name in names]
    wanted = [all(map(equal, row, key)) for row in zip(*columns, strict=True)]
    expected = table.filter(pa.array(wanted, pa.bool_()))
    assert Counter(texts(exchange.lookup(key))) == Counter(texts(expected))


def settings_for(examples: int) -> settings:
    return settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))


@settings_for(600)
@given(writes())
def test_every_row_comes_back_where_it_belongs(write: Write) -> None:
    check(write)


@pytest.mark.soak
@settings_for(10_000)
@given(writes())
def test_every_row_comes_back_where_it_belongs_10_000_times(write: Write) -> None:
    check(write)


def test_no_batches_and_empty_batches_make_a_step_without_rows(root: str) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
    options = write_options(keys=("k",), partitions=4)
    write_batches(root, [], schema=schema, options=options)
    write_batches(root, [pa.record_batch([[], []], schema=schema)], options=options)
    read = Exchange(root).read().read_all()
    assert (read.num_rows, read.schema) == (0, schema)
    assert Exchange(root).info().steps == 2


@pytest.mark.parametrize("names", [["k"], ["k", "v", "w"], ["k", "x"]])
def test_a_later_batch_with_other_columns_makes_no_step(root: str, names: list[str]) -> None:
    first = pa.record_batch([[1], [2]], names=["k", "v"])
    second = pa.record_batch([[3]] * len(names), names=names)
    with pytest.raises(ExchangeMismatch, match=", ".join(names)):
        write_batches(root, [first, second], options=write_options(keys=("k",), partitions=2))
    with pytest.raises(ExchangeNotFound):
        Exchange(root).read()


def test_a_mode_that_does_not_exist_is_not_taken_for_an_append(root: str) -> None:
    with pytest.raises(BadOption, match="overwrite"):
        write_batches(
            root, [pa.record_batch({"k": [1]})], options=write_options(), mode="overwrite"
        )
    with pytest.raises(ExchangeNotFound):
        Exchange(root).read()


def test_columns_may_come_in_another_order(root: str) -> None:
    first = pa.record_batch([[1], ["a"]], names=["k", "v"])
    second = pa.record_batch([["b"], [2]], names=["v", "k"])
    write_batches(root, [first, second], options=write_options())
    assert Exchange(root).read().read_all().to_pydict() == {"k": [1, 2], "v": ["a", "b"]}
