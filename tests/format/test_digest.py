"""Digests, compared with a hash of single rows written independently of Arrow and numpy."""

from __future__ import annotations

import random
import struct
from decimal import Context, Decimal
from functools import reduce
from itertools import pairwise
from operator import xor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ffq_spark.format import digest
from ffq_spark.format.digest import Digest

# A cell is the number, bytes, text, list or tuple that a digest sees: temporal values are their
# integers, decimals their unscaled ones.
Cell = Any

MASK32 = (1 << 32) - 1
MASK64 = (1 << 64) - 1
START, NULL = 0x243F6A8885A308D3, 0x13198A2E03707344
EXACT = Context(prec=90)


# --- the reference ------------------------------------------------------------------------------


def mix(value: int) -> int:
    value &= MASK64
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & MASK64
    value = (value ^ value >> 27) * 0x94D049BB133111EB & MASK64
    return value ^ value >> 31


def chain(hashes: list[int]) -> int:
    return reduce(lambda running, value: mix(running + value), hashes, START)


def together(hashes: list[int], length: int) -> int:
    return mix(sum(mix(h + i * 0x9E3779B97F4A7C15) for i, h in enumerate(hashes)) + length)


def words(value: bytes) -> list[int]:
    padded = value + bytes(-len(value) % 8)
    return [word for (word,) in struct.iter_unpack("<Q", padded)]


def float_bits(value: float, kind: pa.DataType) -> int:
    if value != value:
        return 0x7FF8000000000000 if kind == pa.float64() else 0x7FC00000
    form = "<d" if kind == pa.float64() else "<f"
    return int.from_bytes(struct.pack(form, value + 0.0), "little")


def cell_hash(cell: Cell, kind: pa.DataType) -> int:
    if cell is None:
        return NULL
    if pa.types.is_struct(kind):
        parts = zip(cell, kind, strict=True)
        return chain([cell_hash(part, field.type) for part, field in parts])
    if pa.types.is_map(kind):
        entry = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        return together([cell_hash(part, entry) for part in cell], len(cell))
    if pa.types.is_nested(kind):
        return together([cell_hash(part, kind.value_type) for part in cell], len(cell))
    if isinstance(cell, str):
        cell = cell.encode()
    if isinstance(cell, bytes):
        return together(words(cell), len(cell))
    if isinstance(cell, float):
        return float_bits(cell, kind)
    if isinstance(cell, tuple):
        return chain(words(struct.pack("<iiq", *cell)))
    if kind.bit_width > 64:
        return chain(words(cell.to_bytes(kind.bit_width // 8, "little", signed=True)))
    if kind in (pa.uint8(), pa.uint16()) and cell >> (kind.bit_width - 1):
        # Narrow unsigned numbers are hashed as signed numbers with the same bits.
        cell -= 1 << kind.bit_width
    return int(cell) & (MASK64 if kind.bit_width == 64 else MASK32)


Row = tuple[Cell, ...]


def expected(kinds: list[pa.DataType], rows: list[Row]) -> Digest:
    hashes = [chain([cell_hash(c, k) for c, k in zip(row, kinds, strict=True)]) for row in rows]
    return Digest(len(rows), sum(hashes) & MASK64, reduce(xor, hashes, 0))


# --- random rows --------------------------------------------------------------------------------


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) | st.integers(-2, 2)


def unsigned(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, (1 << bits) - 1) | st.integers(0, 2)


def unscaled(precision: int) -> st.SearchStrategy[int]:
    return st.integers(-(10**precision) + 1, 10**precision - 1) | st.integers(-2, 2)


def floats(width: int) -> st.SearchStrategy[float]:
    return st.floats(width=width) | st.sampled_from([0.0, -0.0, float("nan")])


TEXT = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(["", "\0", "\0\0"])
RAW = st.binary(max_size=40) | st.sampled_from([b"", b"\0", bytes(8)])
LEAVES: dict[pa.DataType, st.SearchStrategy[Cell]] = {
    pa.null(): st.none(),
    pa.bool_(): st.booleans(),
    pa.int8(): integers(8),
    pa.int16(): integers(16),
    pa.int32(): integers(32),
    pa.int64(): integers(64),
    pa.uint8(): unsigned(8),
    pa.uint16(): unsigned(16),
    pa.uint32(): unsigned(32),
    pa.uint64(): unsigned(64),
    pa.float16(): floats(16),
    pa.float32(): floats(32),
    pa.float64(): floats(64),
    pa.date32(): integers(32),
    pa.date64(): st.integers(-9999, 9999).map(lambda days: days * 86_400_000),
    pa.time32("ms"): st.integers(0, 86_399_999),
    pa.time64("ns"): st.integers(0, 86_399_999_999_999),
    pa.timestamp("s"): integers(40),
    pa.timestamp("us", "Europe/Paris"): integers(64),
    pa.timestamp("ns"): integers(64),
    pa.duration("us"): integers(64),
    pa.month_day_nano_interval(): st.tuples(integers(32), integers(32), integers(64)),
    pa.decimal128(9, 2): unscaled(9),
    pa.decimal128(38, 10): unscaled(38),
    pa.decimal256(76, 3): unscaled(76),
    pa.string(): TEXT,
    pa.large_string(): TEXT,
    pa.string_view(): TEXT,
    pa.binary(): RAW,
    pa.large_binary(): RAW,
    pa.binary_view(): RAW,
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.binary(16): st.binary(min_size=16, max_size=16),
    pa.binary(0): st.just(b""),
}
if hasattr(pa, "decimal32"):
    LEAVES |= {pa.decimal32(9, 2): unscaled(9), pa.decimal64(18, 0): unscaled(18)}


def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    named = st.lists(inner, max_size=3).map(lambda ks: [(f"f{i}", k) for i, k in enumerate(ks)])
    keys = st.sampled_from([pa.string(), pa.int32()])
    return (
        st.sampled_from([pa.list_, pa.large_list, pa.list_view, pa.large_list_view]).flatmap(
            inner.map
        )
        | inner.map(lambda kind: pa.list_(kind, 2))
        | named.map(pa.struct)
        | st.builds(pa.map_, keys, inner)
    )


KINDS = st.recursive(st.sampled_from(list(LEAVES)), nested, max_leaves=4)


def values_of(kind: pa.DataType) -> st.SearchStrategy[Cell]:
    if kind in LEAVES:
        return LEAVES[kind]
    if pa.types.is_struct(kind):
        return st.tuples(*(cells_of(field.type) for field in kind))
    if pa.types.is_map(kind):
        return st.lists(st.tuples(values_of(kind.key_type), cells_of(kind.item_type)), max_size=3)
    if pa.types.is_fixed_size_list(kind):
        return st.lists(cells_of(kind.value_type), min_size=2, max_size=2)
    return st.lists(cells_of(kind.value_type), max_size=4)


def cells_of(kind: pa.DataType) -> st.SearchStrategy[Cell]:
    return st.none() if pa.types.is_null(kind) else st.none() | values_of(kind)


def to_python(cell: Cell, kind: pa.DataType) -> Any:
    """Convert a cell to the value that `pa.array` accepts."""
    if cell is None:
        return None
    if pa.types.is_struct(kind):
        return {f.name: to_python(part, f.type) for f, part in zip(kind, cell, strict=True)}
    if pa.types.is_map(kind):
        return [(to_python(k, kind.key_type), to_python(v, kind.item_type)) for k, v in cell]
    if pa.types.is_nested(kind):
        return [to_python(part, kind.value_type) for part in cell]
    if pa.types.is_decimal(kind):
        return Decimal(cell).scaleb(-kind.scale, EXACT)
    return np.float16(cell) if pa.types.is_float16(kind) else cell


def column(cells: list[Cell], kind: pa.DataType, skip: int = 0) -> pa.Array:
    """Return the cells as a slice that begins `skip` rows into a longer array."""
    whole = cells[:skip] + cells + cells[:1]
    array = pa.array([to_python(cell, kind) for cell in whole], kind)
    return array.slice(min(skip, len(cells)), len(cells))


def batch_of(kinds: list[pa.DataType], rows: list[Row], skip: int = 0) -> pa.RecordBatch:
    columns = [column([row[i] for row in rows], kind, skip) for i, kind in enumerate(kinds)]
    return pa.record_batch(columns, names=[str(i) for i in range(len(kinds))])


@st.composite
def tables(
    draw: st.DrawFn, kinds: st.SearchStrategy[pa.DataType] = KINDS, min_rows: int = 0
) -> tuple[list[pa.DataType], list[Row]]:
    types = draw(st.lists(kinds, min_size=1, max_size=3))
    rows = st.lists(st.tuples(*map(cells_of, types)), min_size=min_rows, max_size=12)
    return types, draw(rows)


def of(*columns: Any) -> Digest:
    arrays = [c if isinstance(c, pa.Array) else pa.array(c) for c in columns]
    return Digest.of(pa.record_batch(arrays, names=[str(i) for i in range(len(arrays))]))


# --- the reference agrees -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(LEAVES), ids=str)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_each_type(kind: pa.DataType, data: st.DataObject) -> None:
    kinds, rows = data.draw(tables(st.just(kind)))
    assert Digest.of(batch_of(kinds, rows, data.draw(st.integers(0, 3)))) == expected(kinds, rows)


@settings(max_examples=200, deadline=None)
@given(table=tables(), skip=st.integers(0, 3))
def test_nested_types_and_several_columns(
    table: tuple[list[pa.DataType], list[Row]], skip: int
) -> None:
    kinds, rows = table
    assert Digest.of(batch_of(kinds, rows, skip)) == expected(kinds, rows)


def test_long_values_and_long_lists() -> None:
    texts = ["é" * (i % 9) for i in range(300)] + ["long" * 30_000 + "er"]
    lists = [[i, None] for i in range(300)] + [list(range(20_000))]
    kinds = [pa.string(), pa.list_(pa.int64())]
    rows = list(zip(texts, lists, strict=True))
    assert Digest.of(batch_of(kinds, rows)) == expected(kinds, rows)


# --- what does not change a digest --------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(table=tables(), seed=st.integers(0, 99), cuts=st.lists(st.integers(0, 12), max_size=3))
def test_neither_order_nor_batches_count(
    table: tuple[list[pa.DataType], list[Row]], seed: int, cuts: list[int]
) -> None:
    kinds, rows = table
    whole = Digest.of(batch_of(kinds, rows))
    shuffled = random.Random(seed).sample(rows, len(rows))
    assert Digest.of(batch_of(kinds, shuffled)) == whole
    batch = batch_of(kinds, shuffled)
    ends = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    slices = [batch.slice(a, b - a) for a, b in pairwise(ends)]
    assert sum((Digest.of(part) for part in slices), Digest()) == whole


@settings(max_examples=50, deadline=None)
@given(table=tables(min_rows=1), rows=st.integers(1, 5), size=st.sampled_from([1, 100, 1 << 20]))
def test_blocks_do_not_count(
    table: tuple[list[pa.DataType], list[Row]], rows: int, size: int
) -> None:
    batch = batch_of(*table)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digest, "_BLOCK_ROWS", rows)
        patch.setattr(digest, "_BLOCK_BYTES", size)
        assert Digest.of(batch) == expected(*table)


@settings(max_examples=50, deadline=None)
@given(data=st.data(), seed=st.integers(0, 99))
def test_dictionaries_do_not_count(data: st.DataObject, seed: int) -> None:
    kind = data.draw(st.sampled_from([pa.string(), pa.int64(), pa.decimal128(9, 2), pa.float64()]))
    values = data.draw(st.lists(cells_of(kind), min_size=1, max_size=8))
    places = data.draw(st.lists(st.none() | st.integers(0, len(values) - 1), max_size=12))
    array = pa.DictionaryArray.from_arrays(pa.array(places, pa.int8()), column(values, kind))
    rows = [(None if place is None else values[place],) for place in places]
    assert of(array) == expected([kind], rows)
    assert of(array.slice(1)) == expected([kind], rows[1:])


LISTS = [[1, 2], None, [], [None], [3]]
PAIRS = [[1, 2], None, [3, None], [5, 6]]
SPELLINGS = {
    "text": [pa.array(["a", None, "", "x" * 30], k) for k in
             (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.binary_view())],
    "runs": [pc.run_end_encode(pa.array(["a", "a", None, "b"])), pa.array(["a", "a", None, "b"])],
    "lists": [pa.array(LISTS, kind(pa.int64())) for kind in
              (pa.list_, pa.large_list, pa.list_view, pa.large_list_view)],
    "fixed lists": [pa.array(PAIRS, pa.list_(pa.int64(), 2)), pa.array(PAIRS)],
    "views in disorder": [
        pa.ListViewArray.from_arrays([2, 0, 1], [1, 2, 2], pa.array([1, 2, 3])),
        pa.array([[3], [1, 2], [2, 3]]),
    ],
    "extensions": [pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"u" * 16], pa.binary(16))),
                   pa.array([b"u" * 16])],
    "unions": [
        pa.UnionArray.from_dense(pa.array([0, 1, 0], pa.int8()), pa.array([1, 0, 0], pa.int32()),
                                 [pa.array([7, None]), pa.array(["x"])]),
        pa.UnionArray.from_sparse(pa.array([0, 1, 0], pa.int8()),
                                  [pa.array([None, 9, 7]), pa.array(["p", "x", "q"])]),
    ],
}  # fmt: skip


@pytest.mark.parametrize("spellings", SPELLINGS.values(), ids=SPELLINGS)
def test_spellings_do_not_count(spellings: list[pa.Array]) -> None:
    for start in range(len(spellings[0])):
        assert len({of(array.slice(start)) for array in spellings}) == 1
        assert len({of(array.slice(start, 1)) for array in spellings}) == 1


FIXED_AND_BYTES = [k for k in LEAVES if k != pa.null() and "view" not in str(k)]


@pytest.mark.parametrize("kind", FIXED_AND_BYTES, ids=str)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_what_lies_beneath_a_null_does_not_count(kind: pa.DataType, data: st.DataObject) -> None:
    cells = data.draw(st.lists(LEAVES[kind], min_size=8, max_size=8))
    odd_rows_only = pa.py_buffer(bytes([0b10101010]))
    buffers = [odd_rows_only, *column(cells, kind).buffers()[1:]]
    array = pa.Array.from_buffers(kind, 8, buffers)
    rows = [(cell if i % 2 else None,) for i, cell in enumerate(cells)]
    assert of(array) == expected([kind], rows)
    assert of(array.slice(3)) == expected([kind], rows[3:])


def test_what_lies_beneath_a_null_list_or_struct_does_not_count() -> None:
    numbers, mask = pa.array([1, 2, 3, 4, 5, 6]), pa.array([False, True, False])
    offsets = pa.array([0, 1, 3, 4], pa.int32())
    for lists, wanted in (
        (pa.ListArray.from_arrays(offsets, numbers, mask=mask), [[1], None, [4]]),
        (pa.FixedSizeListArray.from_arrays(numbers, 2, mask=mask), [[1, 2], None, [5, 6]]),
        (pa.ListViewArray.from_arrays([0, 2, 4], [1, 2, 1], numbers, mask=mask), [[1], None, [5]]),
    ):
        assert of(lists) == of(wanted)
        assert of(lists.slice(1)) == of(wanted[1:])
    structs = pa.StructArray.from_arrays([numbers[:3]], names=["n"], mask=mask)
    assert of(structs.slice(1)) == of([None, {"n": 3}])
    maps = pa.MapArray.from_arrays(pa.array([0, None, 2, 3], pa.int32()), numbers, numbers)
    assert of(maps.slice(1)) == of(pa.array([None, [(3, 3)]], maps.type))


def test_zeros_are_equal_and_so_are_nans() -> None:
    assert of([0.0]) == of([-0.0])
    bits = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001], np.uint64)
    assert of(pa.array(bits.view(np.float64))) == of([float("nan")] * 3)
    single = np.array([0x7FC00000, 0xFFC00001, 0x7F800001], np.uint32).view(np.float32)
    assert of(pa.array(single)) == of(pa.array([float("nan")] * 3, pa.float32()))
    half = np.array([0x7E00, 0xFE01, 0x7C01], np.uint16).view(np.float16)
    assert of(pa.array(half)) == of(pa.array(half[[0, 0, 0]]))


def test_buffers_need_not_be_aligned() -> None:
    def shifted(raw: bytes) -> pa.Buffer:
        return pa.py_buffer(b"\0" + raw).slice(1)

    longs = pa.Array.from_buffers(pa.int64(), 2, [None, shifted(struct.pack("<qq", 7, -7))])
    wide = pa.Array.from_buffers(pa.decimal128(9, 0), 1, [None, shifted(struct.pack("<qq", 7, 0))])
    offsets = shifted(struct.pack("<iii", 0, 5, 11))
    texts = pa.Array.from_buffers(pa.string(), 2, [None, offsets, shifted(b"helloworld!")])
    assert of(longs, texts) == of([7, -7], ["hello", "world!"])
    assert of(wide) == of([Decimal(7)])


# --- what changes a digest ----------------------------------------------------------------------


def same(left: Cell, right: Cell) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (left != left and right != right)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


@settings(max_examples=300, deadline=None)
@given(table=tables(min_rows=1), data=st.data())
def test_every_value_counts(
    table: tuple[list[pa.DataType], list[Row]], data: st.DataObject
) -> None:
    kinds, rows = table
    at = data.draw(st.integers(0, len(rows) - 1))
    place = data.draw(st.integers(0, len(kinds) - 1))
    cell = data.draw(cells_of(kinds[place]))
    assume(not same(cell, rows[at][place]))
    changed = rows.copy()
    changed[at] = (*rows[at][:place], cell, *rows[at][place + 1 :])
    before, after = (Digest.of(batch_of(kinds, these)) for these in (rows, changed))
    assert before.rows == after.rows
    assert before.hash_sum != after.hash_sum
    assert before.hash_xor != after.hash_xor


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (([1, 2], [3, 4]), ([3, 4], [1, 2])),
        (([1, 2], [3, 4]), ([1, 2], [4, 3])),
        (([1, 1], [2, 2]), ([1, 2], [2, 1])),
        (([None],), ([0],)),
        (([None],), ([""],)),
        ((["ab", "c"],), (["a", "bc"],)),
        ((["a"], ["bc"]), (["ab"], ["c"])),
        ((["a"],), (["a\0"],)),
        (([""],), (["\0" * 8],)),
        (([[1, 2]],), ([[2, 1]],)),
        (([[1, 2], [3]],), ([[1], [2, 3]],)),
        (([[1], [2]],), ([[1, 2], []],)),
        (([[], [0]],), ([None, [0]],)),
        (([[0], []],), ([[0], [None]],)),
        (([[0]],), ([[0, 0]],)),
        (([[[1], [2]]],), ([[[1, 2]]],)),
        (([[[1], []]],), ([[[], [1]]],)),
        (([{"a": None}, {"a": 1}],), ([None, {"a": 1}],)),
        (([{"a": 1, "b": 2}],), ([{"a": 2, "b": 1}],)),
        (([5, 5, 6],), ([7, 7, 6],)),
        (([5, 5],), ([],)),
    ],
)
def test_places_nulls_and_lengths_count(left: tuple[Any, ...], right: tuple[Any, ...]) -> None:
    kinds = [pa.array([*a, *b]).type for a, b in zip(left, right, strict=True)]
    these, those = (map(pa.array, columns, kinds) for columns in (left, right))
    assert of(*these) != of(*those)


def test_a_million_neighbouring_values_have_a_million_hashes() -> None:
    numbers = pa.array(np.arange(1_000_000))
    thousands = [pa.array(np.arange(1_000_000) // 1000), pa.array(np.arange(1_000_000) % 1000)]
    texts = numbers.cast(pa.string())
    pairs = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(2_000_000) // 3), 2)
    for columns in ([numbers], thousands, [texts], [pairs]):
        hashes = digest._fold_columns(columns, 1_000_000)
        assert len(np.unique(hashes)) == 1_000_000


# --- the digest itself --------------------------------------------------------------------------


def test_digests_are_kept_for_ever() -> None:
    """Step records store digests, so these values must never change."""
    numbers = of([1, None, -7])
    assert numbers == Digest(3, 5870195843034015317, 13693735877967069883)
    mixed = of(["shuffle", None], [1.5, float("nan")], [[1, None], []], [Decimal("1.25"), None])
    assert mixed == Digest(2, 5081818981661933561, 11994844267377590257)


def test_no_rows_and_no_columns() -> None:
    for kind in LEAVES:
        assert of(pa.array([], kind)) == of(pa.array([], pa.list_(kind))) == Digest()
    three = pa.record_batch({"k": [1, 2, 3]}).select([])
    assert Digest.of(three).rows == 3


def test_names_do_not_count() -> None:
    assert Digest.of(pa.record_batch({"a": [1]})) == Digest.of(pa.record_batch({"b": [1]}))


def test_sums_wrap_and_the_text_is_short() -> None:
    top = Digest(1, MASK64, 0xF0)
    assert top + Digest(2, 2, 0xFF) == Digest(3, 1, 0x0F)
    assert top + Digest() == top
    assert str(Digest(3, 0x1F << 32, MASK64)) == "3 rows, sum 0000001f…, xor ffffffff…"
