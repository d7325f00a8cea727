"""Pruning never loses a row: a filter matches the same rows with and without pruning."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from arrow_strategies import FFQ_KEYS, FLOATS, LEAVES, ORDERED, cells, order_key, texts
from hypothesis import given, settings
from hypothesis import strategies as st
from layouts import write_options

from ffq_spark import Exchange
from ffq_spark.exchange.compute.pruning import Predicate, matching_hashes, may_match
from ffq_spark.exchange.read.serial_read import read_parts
from ffq_spark.exchange.scan.snapshot import Snapshot, take_snapshot
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.format.hashing import partition_ids
from ffq_spark.format.records import ExchangeRecord
from ffq_spark.options import ReadOptions, WriteOptions
from ffq_spark.store import Store

NAN = float("nan")


def matching_partitions(
    exchange: ExchangeRecord, predicates: list[Predicate]
) -> frozenset[int] | None:
    hashes = matching_hashes(exchange, predicates)
    return None if hashes is None else frozenset(hashes.partitions(exchange.partitions).tolist())


def matches(value: Any, predicate: Predicate) -> bool:
    """Evaluate a predicate like Spark: NaN equals NaN and is the largest value, -0.0 equals 0.0."""
    mine = order_key(value)
    if predicate.op == "in":
        return any(mine == order_key(other) for other in predicate.values)
    if value is None:
        return False
    other = order_key(predicate.values[0])
    return {
        "<": mine < other,
        "<=": mine <= other,
        ">": mine > other,
        ">=": mine >= other,
    }[predicate.op]


def filtered(table: pa.Table, predicates: Sequence[Predicate]) -> Counter[str]:
    mask = [True] * table.num_rows
    for predicate in predicates:
        matching = [matches(value, predicate) for value in table[predicate.column].to_pylist()]
        mask = [a and b for a, b in zip(mask, matching, strict=True)]
    return Counter(texts(table.filter(pa.array(mask, pa.bool_()))))


def read(snapshot: Snapshot, predicates: Sequence[Predicate]) -> pa.Table:
    schema = snapshot.exchange.schema
    batches = read_parts(snapshot.store, snapshot.parts(predicates), schema)
    return pa.Table.from_batches(batches, schema)


@st.composite
def value_pools(draw: st.DrawFn, kind: pa.DataType) -> list[Any]:
    """Generate a few values of a type; floats often include NaN and both zeros."""
    values: list[Any] = draw(st.lists(cells(kind), min_size=1, max_size=5))
    special = st.sampled_from([[], [NAN], [NAN, 1.0], [0.0, -0.0]])
    return values + (draw(special) if pa.types.is_floating(kind) else [])


@st.composite
def predicates_on(draw: st.DrawFn, column: str, kind: pa.DataType, seen: list[Any]) -> Predicate:
    """Generate a condition on values that occur in the column, and on others."""
    candidates = cells(kind) | st.sampled_from(seen)
    op = draw(st.sampled_from(["in", "in", "<", "<=", ">", ">="]))
    if op != "in":
        comparable = candidates.filter(lambda value: value is not None)
        if pa.types.is_null(kind) or kind not in ORDERED:
            op = "in"
        else:
            return Predicate(column, op, (draw(comparable),))
    return Predicate(column, "in", tuple(draw(st.lists(candidates, min_size=0, max_size=3))))


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[pa.RecordBatch], WriteOptions, list[Predicate]]:
    hash = draw(st.sampled_from(["spark", "ffq"]))
    # Floats are tested most, because their equality, order and bits differ.
    keys = [*(FFQ_KEYS if hash == "ffq" else LEAVES), *FLOATS * 3]
    kinds = [draw(st.sampled_from(keys)) for _ in range(draw(st.integers(1, 2)))]
    kinds.append(draw(st.sampled_from([*ORDERED, *FLOATS * 5])))
    names = [f"k{i}" for i in range(len(kinds) - 1)] + ["v"]
    pools = [draw(value_pools(kind)) for kind in kinds]
    schema = pa.schema(list(zip(names, kinds, strict=True)))
    batches = []
    for _ in range(draw(st.integers(1, 3))):
        count = draw(st.sampled_from([0, 4, 8, 12]))
        cut = [
            draw(st.lists(st.sampled_from(pool), min_size=count, max_size=count)) for pool in pools
        ]
        arrays = [pa.array(items, kind) for items, kind in zip(cut, kinds, strict=True)]
        batches.append(pa.record_batch(arrays, schema=schema))
    options = write_options(
        keys=tuple(names[:-1]),
        partitions=draw(st.sampled_from([1, 4, 32])),
        hash=hash,
        statistics=(draw(st.sampled_from(["all", "all", "auto", "none"])),),
    )
    columns = draw(st.sets(st.sampled_from(range(len(names))), min_size=1))
    filters = [draw(predicates_on(names[i], kinds[i], pools[i])) for i in sorted(columns)]
    return batches, options, filters


@settings(max_examples=400, deadline=None)
@given(cases())
def test_a_pruned_read_loses_no_matching_row(
    case: tuple[list[pa.RecordBatch], WriteOptions, list[Predicate]],
) -> None:
    batches, options, predicates = case
    with tempfile.TemporaryDirectory(prefix="ffq-pruning-") as root:
        for batch in batches:
            write_batches(root, [batch], options=options)
        snapshot = take_snapshot(Store(root), ReadOptions())
        everything = read(snapshot, [])
        assert everything.num_rows == sum(batch.num_rows for batch in batches)
        assert filtered(read(snapshot, predicates), predicates) == filtered(everything, predicates)


@pytest.mark.parametrize("name", ["a", ".a", ".", ".a.min", "a.b", "[0]"])
def test_a_column_is_pruned_by_its_own_statistics_whatever_its_name(root: str, name: str) -> None:
    """Arrow reads a name that begins with a dot as the path of a nested field."""
    names = dict.fromkeys(["a", name])
    for start in (0, 100):
        columns = {other: [start + 10, start + 20] for other in names} | {name: [start, start + 1]}
        options = write_options(keys=(name,), partitions=2, statistics=("all",))
        write_batches(root, [pa.record_batch(columns)], options=options)
    snapshot = take_snapshot(Store(root), ReadOptions())
    for value in (0, 1, 100, 101):
        parts = snapshot.parts([Predicate(name, ">=", (value,)), Predicate(name, "<=", (value,))])
        assert parts["step"].to_pylist() == [2 if value >= 100 else 1]
        assert Exchange(root).lookup(value)[name].to_pylist() == [value]


def test_what_is_left_keeps_nothing_else_in_memory(root: str) -> None:
    """Readers and services keep plans, so a pruned plan must not hold the memory of all parts."""
    batch = pa.record_batch({"k": range(5000)})
    write_batches(root, [batch], options=write_options(keys=("k",), partitions=1000))
    snapshot = take_snapshot(Store(root), ReadOptions())
    everything = snapshot.parts().get_total_buffer_size()
    by_number = snapshot.parts(partitions=frozenset({7}))
    by_key = snapshot.parts([Predicate("k", "in", (42,))])
    for parts in (by_number, by_key):
        assert parts.num_rows == 1
        assert parts.get_total_buffer_size() < everything / 20


# --- parts that must be pruned ----------------------------------------------------------------


def keyed(kind: pa.DataType, hash: str = "spark") -> ExchangeRecord:
    return ExchangeRecord.of(pa.schema([("k", kind)]), ["k"], 64, hash)


@pytest.mark.parametrize("hash", ["spark", "ffq"])
def test_equality_on_the_key_leaves_the_partition_of_its_hash(hash: str) -> None:
    for value in (0, 1, -7, None):
        (expected,) = partition_ids([pa.array([value], pa.int64())], 64, hash).tolist()
        partitions = matching_partitions(keyed(pa.int64(), hash), [Predicate("k", "in", (value,))])
        assert partitions == {expected}


def test_a_zero_leaves_the_partitions_of_both_its_signs() -> None:
    for hash in ("spark", "ffq"):
        both = partition_ids([pa.array([0.0, -0.0])], 64, hash).tolist()
        for zero in (0.0, -0.0):
            partitions = matching_partitions(
                keyed(pa.float64(), hash), [Predicate("k", "in", (zero,))]
            )
            assert partitions is not None and set(both) <= partitions


def test_a_zero_given_as_an_integer_leaves_both_its_signs_too() -> None:
    both = partition_ids([pa.array([0.0, -0.0])], 64, "ffq").tolist()
    partitions = matching_partitions(keyed(pa.float64(), "ffq"), [Predicate("k", "in", (0,))])
    assert partitions is None or set(both) <= partitions


def test_nan_has_many_bits_and_so_all_of_ffqs_partitions() -> None:
    assert matching_partitions(keyed(pa.float64(), "ffq"), [Predicate("k", "in", (NAN,))]) is None
    partitions = matching_partitions(keyed(pa.float64()), [Predicate("k", "in", (NAN,))])
    assert partitions == set(partition_ids([pa.array([NAN])], 64).tolist())


def test_the_shortest_list_of_a_key_decides_and_an_empty_one_leaves_nothing() -> None:
    exchange = keyed(pa.int64())
    long = Predicate("k", "in", tuple(range(50)))
    short = Predicate("k", "in", (3,))
    assert matching_partitions(exchange, [long, short]) == matching_partitions(exchange, [short])
    assert matching_partitions(exchange, [Predicate("k", "in", ())]) == frozenset()


def test_a_range_a_missing_key_or_too_many_values_leave_all_partitions() -> None:
    two = ExchangeRecord.of(pa.schema([("a", pa.int64()), ("b", pa.int64())]), ["a", "b"], 64)
    assert matching_partitions(two, [Predicate("a", "in", (1,))]) is None
    assert matching_partitions(keyed(pa.int64()), [Predicate("k", "<", (1,))]) is None
    many = Predicate("k", "in", tuple(range(5000)))
    assert matching_partitions(keyed(pa.int64()), [many]) is None


def test_a_value_of_another_type_leaves_all_partitions() -> None:
    assert matching_partitions(keyed(pa.int64()), [Predicate("k", "in", ("x",))]) is None
    assert matching_partitions(keyed(pa.int8()), [Predicate("k", "in", (1000,))]) is None


def manifest(root: str, *ranges: range) -> pa.Table:
    """Make a manifest with one part for each range of `v`."""
    for values in ranges:
        batch = pa.record_batch({"v": pa.array(values, pa.int64())})
        write_batches(root, [batch], options=write_options(statistics=("v",)))
    return take_snapshot(Store(root), ReadOptions()).parts()


@pytest.mark.parametrize(
    ("predicate", "kept"),
    [
        (Predicate("v", "in", (15,)), [2]),
        (Predicate("v", "in", (9, 20)), [1, 3]),
        (Predicate("v", "<", (10,)), [1]),
        (Predicate("v", "<=", (10,)), [1, 2]),
        (Predicate("v", ">", (19,)), [3]),
        (Predicate("v", ">=", (19,)), [2, 3]),
        (Predicate("v", "in", (None,)), []),
        (Predicate("v", "in", ()), []),
        (Predicate("other", "in", (1,)), [1, 2, 3]),
        (Predicate("v", "in", ("not a number",)), [1, 2, 3]),
    ],
)
def test_statistics_leave_the_parts_whose_bounds_allow_a_match(
    root: str, predicate: Predicate, kept: list[int]
) -> None:
    manifest(root, range(10), range(10, 20), range(20, 30))
    snapshot = take_snapshot(Store(root), ReadOptions())
    assert snapshot.parts([predicate])["step"].to_pylist() == kept


def test_a_manifest_without_statistics_keeps_every_part(root: str) -> None:
    parts = manifest(root, range(3), range(3))
    assert may_match(parts, [Predicate("v", "in", (99,))]).tolist() == [True, True]
