"""Partition ids, compared with independently written scalar hashes."""

from __future__ import annotations

import struct
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ffq_spark.errors import BadOption, UnsupportedType
from ffq_spark.format import hashing
from ffq_spark.format.hashing import (
    check_key_type,
    ffq_hash,
    partition_ids,
    rounds,
    spark_hash,
)

# A cell is the number, bytes, text, list or tuple that a hash sees: temporal values are their
# integers, decimals their unscaled ones.
Cell = Any

MASK32 = (1 << 32) - 1
MASK64 = (1 << 64) - 1
EXACT = Context(prec=60)


# --- the scalar references --------------------------------------------------------------------


def rotate(value: int, bits: int, width: int) -> int:
    return (value << bits | value >> (width - bits)) & ((1 << width) - 1)


def murmur3(blocks: list[int], length: int, seed: int) -> int:
    h = seed
    for block in blocks:
        k = rotate((block & MASK32) * 0xCC9E2D51 & MASK32, 15, 32) * 0x1B873593 & MASK32
        h = (rotate(h ^ k, 13, 32) * 5 + 0xE6546B64) & MASK32
    h ^= length
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        h = (h ^ h >> shift) * factor & MASK32
    return h


def murmur3_long(value: int, seed: int) -> int:
    return murmur3([value & MASK32, value >> 32 & MASK32], 8, seed)


def murmur3_bytes(value: bytes, seed: int) -> int:
    whole = len(value) // 4 * 4
    words = list(struct.unpack(f"<{whole // 4}I", value[:whole]))
    return murmur3(words + list(struct.unpack(f"{len(value) - whole}b", value[whole:])),
                   len(value), seed)  # fmt: skip


def spark_cell(cell: Cell, kind: pa.DataType, seed: int) -> int:
    if cell is None:
        return seed
    if pa.types.is_struct(kind):
        for i, part in enumerate(cell):
            seed = spark_cell(part, kind.field(i).type, seed)
        return seed
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        for part in cell:
            seed = spark_cell(part, kind.value_type, seed)
        return seed
    if isinstance(cell, str):
        return murmur3_bytes(cell.encode(), seed)
    if isinstance(cell, bytes):
        return murmur3_bytes(cell, seed)
    if isinstance(cell, float):
        single = kind == pa.float32()
        if cell != cell:
            bits = 0x7FC00000 if single else 0x7FF8000000000000
        else:
            bits = int.from_bytes(struct.pack("<f" if single else "<d", cell + 0.0), "little")
        return murmur3([bits], 4, seed) if single else murmur3_long(bits, seed)
    if pa.types.is_decimal(kind) and kind.precision > 18:
        size = (cell if cell >= 0 else ~cell).bit_length() // 8 + 1
        return murmur3_bytes(cell.to_bytes(size, "big", signed=True), seed)
    if kind in (pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.date32()):
        return murmur3([int(cell)], 4, seed)
    return murmur3_long(cell, seed)


def siphash13(message: bytes) -> int:
    v = [0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573]

    def sip_round() -> None:
        for a, b, bits, swap in ((0, 1, 13, 1), (2, 3, 16, 0), (0, 3, 21, 0), (2, 1, 17, 1)):
            v[a] = (v[a] + v[b]) & MASK64
            v[b] = rotate(v[b], bits, 64) ^ v[a]
            if swap:
                v[a] = rotate(v[a], 32, 64)

    padded = message + bytes(-(len(message) + 1) % 8) + bytes([len(message) % 256])
    for (word,) in struct.iter_unpack("<Q", padded):
        v[3] ^= word
        sip_round()
        v[0] ^= word
    v[2] ^= 0xFF
    for _ in range(3):
        sip_round()
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def ffq_row(cells: tuple[Cell, ...]) -> int:
    message = struct.pack("<Q", len(cells))
    for cell in cells:
        if cell is None:
            message += b"\x05"
        elif isinstance(cell, bool):
            message += bytes([4, cell])
        elif isinstance(cell, int):
            message += b"\x00" + struct.pack("<q", cell)
        elif isinstance(cell, float):
            message += b"\x01" + struct.pack("<d", cell)
        else:
            message += b"\x03" + cell.encode() + b"\xff"
    return siphash13(message)


# --- random columns ---------------------------------------------------------------------------


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


def unscaled(precision: int) -> st.SearchStrategy[int]:
    most = 10**precision - 1
    edges = [sign * (1 << bits) + d for bits in range(7, 128, 8) for sign in (1, -1)
             for d in (-1, 0, 1)]  # fmt: skip
    edges = [edge for edge in [0, -1, most, -most, *edges] if abs(edge) <= most]
    return st.sampled_from(edges) | st.integers(-most, most)


SHORT_TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
LEAVES: dict[pa.DataType, st.SearchStrategy[Cell]] = {
    pa.null(): st.none(),
    pa.bool_(): st.booleans(),
    pa.int8(): integers(8),
    pa.int16(): integers(16),
    pa.int32(): integers(32),
    pa.int64(): integers(64),
    pa.float32(): st.floats(width=32) | st.sampled_from([0.0, -0.0, float("nan")]),
    pa.float64(): st.floats() | st.sampled_from([0.0, -0.0, float("nan")]),
    pa.date32(): integers(32),
    pa.timestamp("us"): integers(64),
    pa.timestamp("us", "Europe/Paris"): integers(64),
    pa.duration("us"): integers(64),
    pa.time64("ns"): st.integers(0, 86_399_999_999_999),
    pa.decimal128(1, 0): unscaled(1),
    pa.decimal128(18, 4): unscaled(18),
    pa.decimal128(19, 19): unscaled(19),
    pa.decimal128(38, 10): unscaled(38),
    pa.string(): SHORT_TEXT,
    pa.large_string(): SHORT_TEXT,
    pa.binary(): st.binary(max_size=40),
    pa.large_binary(): st.binary(max_size=40),
}
FFQ_TYPES = [
    pa.null(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(),
    pa.float64(), pa.string(), pa.large_string(),
]  # fmt: skip
TYPES = st.recursive(
    st.sampled_from(list(LEAVES)),
    lambda inner: (
        inner.map(pa.list_)
        | inner.map(pa.large_list)
        | st.lists(inner, max_size=3).map(
            lambda kinds: pa.struct([(f"f{i}", kind) for i, kind in enumerate(kinds)])
        )
    ),
    max_leaves=4,
)


def cells_of(kind: pa.DataType) -> st.SearchStrategy[Cell]:
    if kind in LEAVES:
        return st.none() | LEAVES[kind]
    if pa.types.is_struct(kind):
        return st.none() | st.tuples(*(cells_of(field.type) for field in kind))
    return st.none() | st.lists(cells_of(kind.value_type), max_size=4)


def to_python(cell: Cell, kind: pa.DataType) -> Any:
    """Convert a cell to the value that `pa.array` accepts."""
    if cell is None:
        return None
    if pa.types.is_struct(kind):
        return {f.name: to_python(part, f.type) for f, part in zip(kind, cell, strict=True)}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [to_python(part, kind.value_type) for part in cell]
    if pa.types.is_decimal(kind):
        return Decimal(cell).scaleb(-kind.scale, EXACT)
    return cell


def column(cells: list[Cell], kind: pa.DataType, skip: int = 0) -> pa.Array:
    """Return the cells as a slice that begins `skip` rows into a longer array."""
    whole = cells[:skip] + cells + cells[:1]
    skipped = min(skip, len(cells))
    array = pa.array([to_python(cell, kind) for cell in whole], kind)
    return array.slice(skipped, len(cells))


@st.composite
def key_columns(
    draw: st.DrawFn, kinds: st.SearchStrategy[pa.DataType]
) -> tuple[list[pa.Array], list[tuple[Cell, ...]]]:
    types = draw(st.lists(kinds, min_size=1, max_size=3))
    rows = draw(st.lists(st.tuples(*map(cells_of, types)), max_size=20))
    skip = draw(st.integers(0, 3))
    columns = [column([row[i] for row in rows], kind, skip) for i, kind in enumerate(types)]
    return columns, rows


def spark_rows(columns: list[pa.Array], rows: list[tuple[Cell, ...]]) -> list[int]:
    hashes = []
    for row in rows:
        seed = 42
        for cell, array in zip(row, columns, strict=True):
            seed = spark_cell(cell, array.type, seed)
        hashes.append(seed)
    return hashes


def assert_spark(columns: list[pa.Array], rows: list[tuple[Cell, ...]]) -> None:
    assert spark_hash(columns).view(np.uint32).tolist() == spark_rows(columns, rows)


@pytest.fixture(scope="module", params=[0, 3, 48], ids=lambda few: f"few={few}", autouse=True)
def few_rows(request: pytest.FixtureRequest) -> Any:
    """Run every test with rows hashed in numpy rounds, in both ways, and one after another."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "_FEW_ROWS", request.param)
        patch.setattr(hashing, "_BLOCK_ROWS", 7 if request.param == 3 else 1 << 16)
        yield


# --- Spark ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(LEAVES), ids=str)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_each_type_is_hashed_as_spark_does(kind: pa.DataType, data: st.DataObject) -> None:
    columns, rows = data.draw(key_columns(st.just(kind)))
    assert_spark(columns, rows)


@settings(max_examples=100, deadline=None)
@given(keys=key_columns(TYPES))
def test_nested_and_multiple_keys_fold_left_to_right(
    keys: tuple[list[pa.Array], list[tuple[Cell, ...]]],
) -> None:
    assert_spark(*keys)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_text_of_every_length(kind: pa.DataType, data: st.DataObject) -> None:
    letters = st.characters(codec="utf-8")
    lengths = data.draw(st.permutations(range(41)))
    cells = [data.draw(letters) * length for length in lengths]
    assert_spark([column(cells, kind, 2)], [(cell,) for cell in cells])


def test_values_that_spark_itself_gives() -> None:
    assert spark_hash([pa.array([1])]).tolist() == [-1712319331]
    assert spark_hash([pa.array(["abc"])]).tolist() == [1322437556]
    assert spark_hash([pa.array([1]), pa.array(["a"])]).tolist() == [573093329]
    assert spark_hash([pa.array([[1, None, 2]])]).tolist() == [-1181176833]
    assert partition_ids([pa.array([1, 2, None])], 64).tolist() == [29, 24, 42]


def test_every_nan_is_one_key() -> None:
    bits = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001], np.uint64)
    assert_spark([pa.array(bits.view(np.float64))], [(float("nan"),)] * 3)
    single = np.array([0x7FC00000, 0xFFC00001, 0x7F800001], np.uint32)
    assert_spark([pa.array(single.view(np.float32))], [(float("nan"),)] * 3)


@pytest.mark.parametrize("kind", [k for k in LEAVES if k != pa.null()], ids=str)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_what_lies_beneath_a_null_does_not_count(kind: pa.DataType, data: st.DataObject) -> None:
    cells = data.draw(st.lists(LEAVES[kind], min_size=8, max_size=8))
    values = column(cells, kind)
    odd_rows_only = pa.py_buffer(bytes([0b10101010]))
    array = pa.Array.from_buffers(kind, 8, [odd_rows_only, *values.buffers()[1:]])
    seen = [cell if i % 2 else None for i, cell in enumerate(cells)]
    assert_spark([array], [(cell,) for cell in seen])
    assert_spark([array.slice(3)], [(cell,) for cell in seen[3:]])


def test_what_lies_beneath_a_null_list_or_struct_does_not_count() -> None:
    numbers = pa.array([1, 2, 3, 4], pa.int32())
    mask = pa.array([False, True, False])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3, 4], pa.int32()), numbers, mask=mask)
    structs = pa.StructArray.from_arrays([numbers[:3]], names=["n"], mask=mask)
    assert_spark([lists], [([1],), (None,), ([4],)])
    assert_spark([structs], [((1,),), (None,), ((3,),)])
    assert_spark([structs.slice(1)], [(None,), ((3,),)])


def test_buffers_need_not_be_aligned() -> None:
    def shifted(raw: bytes) -> pa.Buffer:
        return pa.py_buffer(b"\0" + raw).slice(1)

    longs = pa.Array.from_buffers(pa.int64(), 2, [None, shifted(struct.pack("<qq", 7, -7))])
    offsets = shifted(struct.pack("<iii", 0, 5, 11))
    texts = pa.Array.from_buffers(pa.string(), 2, [None, offsets, shifted(b"helloworld!")])
    rows = [(7, "hello"), (-7, "world!")]
    assert_spark([longs, texts], rows)
    assert ffq_hash([longs, texts]).tolist() == [ffq_row(row) for row in rows]


def test_a_few_long_values_among_many_short_ones() -> None:
    texts = ["é" * (i % 9) for i in range(300)] + ["long" * 30_000 + "er"] + ["漢" * 700] * 2
    lists = [[i, None] for i in range(302)] + [list(range(2_000))]
    assert_spark([column(texts, pa.string())], [(text,) for text in texts])
    assert_spark([column(lists, pa.list_(pa.int64()))], [(cells,) for cells in lists])
    assert ffq_hash([pa.array(texts)]).tolist() == [ffq_row((text,)) for text in texts]


@pytest.mark.parametrize("hash", ["spark", "ffq"])
def test_no_rows_no_partitions(hash: str) -> None:
    for kind in FFQ_TYPES:
        ids = partition_ids([pa.array([], kind)], 7, hash)
        assert len(ids) == 0
        assert ids.dtype == np.int32


@settings(max_examples=30, deadline=None)
@given(keys=key_columns(TYPES), partitions=st.integers(1, 2**31 - 1))
def test_a_partition_is_the_positive_remainder(
    keys: tuple[list[pa.Array], list[tuple[Cell, ...]]], partitions: int
) -> None:
    signed = [(h ^ 1 << 31) - (1 << 31) for h in spark_rows(*keys)]
    ids = partition_ids(keys[0], partitions)
    assert ids.dtype == np.int32
    assert ids.tolist() == [h % partitions for h in signed]


# --- FFQ --------------------------------------------------------------------------------------


def test_the_check_values_of_the_format() -> None:
    assert ffq_hash([pa.array([1, 42])]).tolist() == [8650977268601103231, 6334931344243489526]
    assert ffq_hash([pa.array(["hello"])]).tolist() == [16425425699014767418]
    assert ffq_hash([pa.nulls(1)]).tolist() == [177042301552483903]


@settings(max_examples=100, deadline=None)
@given(keys=key_columns(st.sampled_from(FFQ_TYPES)), partitions=st.integers(1, 2**31 - 1))
def test_ffq_hashes_tagged_bytes(
    keys: tuple[list[pa.Array], list[tuple[Cell, ...]]], partitions: int
) -> None:
    columns, rows = keys
    expected = [ffq_row(row) for row in rows]
    assert ffq_hash(columns).tolist() == expected
    ids = partition_ids(columns, partitions, "ffq")
    assert ids.tolist() == [h % partitions for h in expected]


# --- refusals ---------------------------------------------------------------------------------

VARIANT = pa.struct(
    [
        pa.field("value", pa.binary()),
        pa.field("metadata", pa.binary(), metadata={b"variant": b"true"}),
    ]
)
NOT_SPARK = [
    pa.map_(pa.string(), pa.int32()),
    VARIANT,
    pa.month_day_nano_interval(),
    pa.uint32(),
    pa.timestamp("ns"),
    pa.time32("ms"),
    pa.date64(),
    pa.duration("s"),
    pa.decimal256(40, 2),
    pa.float16(),
    pa.dictionary(pa.int8(), pa.string()),
    pa.binary(4),
    pa.string_view(),
]


@pytest.mark.parametrize("kind", NOT_SPARK, ids=str)
@pytest.mark.parametrize("wrap", [lambda kind: kind, pa.list_, lambda k: pa.struct([("x", k)])])
def test_types_without_a_spark_hash_are_refused_by_name(kind: pa.DataType, wrap: Any) -> None:
    with pytest.raises(UnsupportedType) as refusal:
        check_key_type("order_id", wrap(kind), "spark")
    assert "order_id" in str(refusal.value)
    assert str(wrap(kind)) in str(refusal.value)


@pytest.mark.parametrize("kind", [k for k in LEAVES if k not in FFQ_TYPES] + [VARIANT], ids=str)
def test_ffq_refuses_what_ffq_cannot_hash(kind: pa.DataType) -> None:
    check_key_type("order_id", FFQ_TYPES[-1], "ffq")
    with pytest.raises(UnsupportedType, match=r"`order_id` of type .*hash=ffq supports only"):
        check_key_type("order_id", kind, "ffq")


def test_hashing_refuses_what_the_check_refuses() -> None:
    with pytest.raises(UnsupportedType, match="map"):
        spark_hash([pa.array([], pa.map_(pa.string(), pa.string()))])
    with pytest.raises(UnsupportedType, match="binary"):
        ffq_hash([pa.array([b""])])


def test_a_struct_that_only_looks_like_a_variant_is_hashed() -> None:
    kind = pa.struct([("value", pa.binary()), ("metadata", pa.binary())])
    assert_spark([column([(b"a", b"b")], kind)], [((b"a", b"b"),)])


@pytest.mark.parametrize("partitions", [0, -1, 2**31])
def test_impossible_partition_counts_are_refused(partitions: int) -> None:
    with pytest.raises(BadOption, match="partitions"):
        partition_ids([pa.array([1])], partitions)


def test_impossible_arguments_are_refused() -> None:
    with pytest.raises(BadOption, match="md5"):
        partition_ids([pa.array([1])], 4, "md5")
    with pytest.raises(BadOption, match="key"):
        partition_ids([], 4)
    with pytest.raises(ValueError, match="rows"):
        partition_ids([pa.array([1]), pa.array([1, 2])], 4)
