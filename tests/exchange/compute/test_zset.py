"""Z-sets, compared with a dictionary of rows."""

from __future__ import annotations

import struct
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from arrow_strategies import cells, kinds
from hypothesis import given, settings
from hypothesis import strategies as st

from ffq_spark.errors import BadOption, KeyColumnMissing, Unsupported, UnsupportedType
from ffq_spark.exchange.compute.zset import check_weight, consolidate
from ffq_spark.format.digest import Digest

NAN = float("nan")


def canonical(value: Any) -> Any:
    """Return a hashable form of a value, equal exactly for values that Spark treats as equal."""
    if isinstance(value, float):
        return "NaN" if value != value else ("float", struct.pack("<d", value + 0.0))
    if isinstance(value, dict):
        return "struct", tuple(canonical(part) for part in value.values())
    if isinstance(value, list | tuple):
        return "list", tuple(canonical(part) for part in value)
    return type(value).__name__, value


def as_dictionary(table: pa.Table, weight: str = "w") -> dict[Any, int]:
    """Sum the weights of each row; rows are in the order of their first appearance."""
    weights = table[weight].to_pylist()
    others = table.drop_columns([weight])
    columns = [map(canonical, column.to_pylist()) for column in others.columns]
    rows = list(zip(*columns, strict=True)) if columns else [()] * table.num_rows
    sums: dict[Any, int] = {}
    for row, count in zip(rows, weights, strict=True):
        sums[row] = sums.get(row, 0) + count
    return {row: total for row, total in sums.items() if total}


@st.composite
def zsets(draw: st.DrawFn) -> pa.Table:
    """Generate chunks of rows from small pools of values, so that many rows are equal."""
    types = draw(st.lists(kinds(), max_size=3))
    pools = [draw(st.lists(cells(kind), min_size=1, max_size=3)) for kind in types]
    weight = draw(st.sampled_from([pa.int8(), pa.int32(), pa.int64()]))
    row = st.tuples(*map(st.sampled_from, pools), st.integers(-2, 2))
    at = draw(st.integers(0, len(types)))
    names = [f"c{i}" for i in range(len(types))]
    fields = [pa.field(n, k, metadata={b"of": n}) for n, k in zip(names, types, strict=True)]
    fields.insert(at, pa.field("w", weight, nullable=False))
    schema = pa.schema(fields, metadata={b"made": b"here"})
    chunks = []
    for rows in draw(st.lists(st.lists(row, max_size=8), max_size=3)):
        columns = (
            [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * len(fields)
        )
        columns.insert(at, columns.pop())
        arrays = [pa.array(c, f.type) for c, f in zip(columns, fields, strict=True)]
        skip = draw(st.integers(0, len(rows)))
        chunks.append(pa.record_batch(arrays, schema=schema).slice(skip))
    return pa.Table.from_batches(chunks, schema)


@settings(max_examples=300, deadline=None)
@given(table=zsets())
def test_rows_become_one_with_the_sum_of_their_weights(table: pa.Table) -> None:
    sums = consolidate(table, "w")
    sums.validate(full=True)
    assert sums.schema.equals(table.schema, check_metadata=True)
    expected = as_dictionary(table)
    assert sums.num_rows == len(expected)
    assert list(as_dictionary(sums).items()) == list(expected.items())


@settings(max_examples=50, deadline=None)
@given(table=zsets())
def test_consolidating_again_or_in_another_order_changes_nothing(table: pa.Table) -> None:
    def digest(rows: pa.Table) -> Digest:
        return sum((Digest.of(batch) for batch in rows.to_batches()), Digest())

    sums = consolidate(table, "w")
    assert digest(consolidate(sums, "w")) == digest(sums)
    backwards = table.take(pa.array(range(table.num_rows - 1, -1, -1), pa.int64()))
    assert digest(consolidate(backwards, "w")) == digest(sums)
    negated = table.set_column(
        table.schema.get_field_index("w"),
        table.schema.field("w"),
        pc.negate(table["w"]),
    )
    assert consolidate(pa.concat_tables([table, negated]), "w").num_rows == 0


UNEQUAL = [
    pa.nulls(3),
    pa.array([0, None, 1]),
    pa.array([0.0, None, NAN, float("inf")]),
    pa.array(["", None, "\0", "a", "a\0"]),
    pa.array([b"", None, b"\0"], pa.binary()),
    pa.array([True, False, None]),
    pa.array([[], None, [None], [None, None]], pa.list_(pa.null())),
    pa.array([[], None, [{}], [{}, {}], [None]], pa.list_(pa.struct([]))),
    pa.array([[], None, [0], [None], [0, 0], [1, 2], [2, 1]]),
    pa.array([[[1], [2]], [[1, 2]], [[], [1, 2]], [[1, 2], []], [None], None, []]),
    pa.array([{"a": None, "b": None}, None, {"a": 0, "b": None}, {"a": None, "b": 0}]),
    pa.array([["a", "bc"], ["ab", "c"], ["abc"], [None, "abc"]]),
    pa.array([[("a", 1)], [("a", None)], [], None, [("a", 1), ("b", 2)], [("b", 2), ("a", 1)]],
             pa.map_(pa.string(), pa.int64())),
    pa.array([[1, 2], [2, 1], None, [1, None]], pa.list_(pa.int32(), 2)),
    pa.array([[1, 2], [], None, [1]], pa.large_list_view(pa.int32())),
    pa.array([0, 2**64, 1, None], pa.decimal128(38, 0)),
    pa.array([(1, 2, 3), (2, 1, 3), None], pa.month_day_nano_interval()),
    pa.array([b"abc", b"abd", None], pa.binary(3)),
    pa.array(["x", "y", None, "x"]).dictionary_encode().slice(0, 3),
    pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"u" * 16, None], pa.binary(16))),
    pa.UnionArray.from_sparse(pa.array([0, 1, 1], pa.int8()),
                              [pa.array([1, 1, 1]), pa.array([1, 1, 2], pa.int32())]),
]  # fmt: skip


@pytest.mark.parametrize("values", UNEQUAL, ids=lambda values: str(values.type))
def test_only_equal_rows_become_one(values: pa.Array) -> None:
    count = 1 if pa.types.is_null(values.type) else len(values)
    weights = pa.array([1] * len(values), pa.int16())
    table = pa.table({"v": values, "w": weights})
    once, twice = consolidate(table, "w"), consolidate(pa.concat_tables([table, table]), "w")
    assert once.num_rows == twice.num_rows == count
    assert repr(once["v"].to_pylist()) == repr(twice["v"].to_pylist())
    assert pc.sum(twice["w"]).as_py() == 2 * len(values)


def test_zeros_are_one_row_and_nans_are_one_row() -> None:
    nans = np.array([0x7FF8000000000000, 0xFFF8000000000001], np.uint64).view(np.float64)
    table = pa.table({"v": [-0.0, 0.0, *nans], "w": [1, 2, 3, 4]})
    assert repr(consolidate(table, "w").to_pylist()) == repr(
        [{"v": -0.0, "w": 3}, {"v": NAN, "w": 7}]
    )


def test_chunks_may_have_dictionaries_of_their_own() -> None:
    chunks = [pa.array(texts).dictionary_encode() for texts in (["a", "b"], ["b", "c"])]
    flat = pa.table({"v": pa.chunked_array(chunks), "w": [1, 1, 1, 1]})
    assert consolidate(flat, "w").to_pylist() == [
        {"v": "a", "w": 1}, {"v": "b", "w": 2}, {"v": "c", "w": 1},
    ]  # fmt: skip
    lists = [pa.ListArray.from_arrays([0, 1, 2], chunk) for chunk in chunks]
    deep = pa.table({"v": pa.chunked_array(lists), "w": [1, 1, 1, 1]})
    assert consolidate(deep, "w")["w"].to_pylist() == [1, 2, 1]


def test_many_and_long_values_stay_apart() -> None:
    texts = ["x" * 5000 + str(i) for i in range(200)]
    table = pa.table({"t": texts * 2, "l": [[text, text] for text in texts] * 2, "w": [1] * 400})
    assert Counter(consolidate(table, "w")["w"].to_pylist()) == {2: 200}
    numbers = np.arange(200_000)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(400_000) // 3), 2)
    ones = np.ones(200_000, np.int64)
    table = pa.table({"a": numbers // 500, "b": numbers % 500, "l": lists, "w": ones})
    assert consolidate(table, "w").equals(table)


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_a_sum_that_does_not_fit_is_an_error(bits: int) -> None:
    kind = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[bits]
    top, bottom = 2 ** (bits - 1) - 1, -(2 ** (bits - 1))

    def total(*weights: int) -> list[int]:
        table = pa.table({"k": ["a"] * len(weights), "w": pa.array(weights, kind)})
        weights_left: list[int] = consolidate(table, "w")["w"].to_pylist()
        return weights_left

    assert total(top) == [top]
    assert total(bottom) == [bottom]
    # Partial sums may overflow.
    assert total(top, top, bottom, bottom) == [-2]
    assert total(top, 1, bottom) == []
    for weights in ((top, 1), (bottom, -1), (top, top, top), (bottom, bottom)):
        with pytest.raises(Unsupported, match=f"'w' .*{sum(weights)}.* {kind}"):
            total(*weights)


def test_null_weights_are_refused() -> None:
    table = pa.table({"k": [1, 2], "w": pa.array([1, None], pa.int64())})
    with pytest.raises(BadOption, match="'w' has 1 null"):
        consolidate(table, "w")


@pytest.mark.parametrize("kind", [pa.uint64(), pa.float64(), pa.string(), pa.decimal128(5, 0)])
def test_weights_are_signed_integers(kind: pa.DataType) -> None:
    schema = pa.schema([("k", pa.int64()), ("w", kind)])
    check_weight(schema, "k")
    with pytest.raises(UnsupportedType, match="'w'"):
        check_weight(schema, "w")
    with pytest.raises(UnsupportedType, match="'w'"):
        consolidate(schema.empty_table(), "w")


def test_a_missing_weight_is_refused() -> None:
    with pytest.raises(KeyColumnMissing, match="'w' is not in: k"):
        check_weight(pa.schema([("k", pa.int64())]), "w")


def test_no_rows_stay_no_rows() -> None:
    schema = pa.schema([("k", pa.list_(pa.float32())), ("w", pa.int8())], {b"a": b"b"})
    for table in (schema.empty_table(), pa.Table.from_batches([], schema)):
        assert consolidate(table, "w").schema.equals(schema, check_metadata=True)


def test_types_that_arrow_cannot_take_rows_of_are_refused_by_name() -> None:
    runs = pc.run_end_encode(pa.array(["a", "a"]))
    with pytest.raises(UnsupportedType, match="'v' of type run_end_encoded"):
        consolidate(pa.table({"v": runs, "w": [1, 1]}), "w")
