"""Statistics of parts, compared with a brute-force reference, for every type with an order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from arrow_strategies import INTEGERS, ORDERED, arrays, order_key
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ffq_spark.errors import KeyColumnMissing, UnsupportedType
from ffq_spark.format.manifest import stats_type
from ffq_spark.format.statistics import choose, merge, segment_statistics

NAN, INF = float("nan"), float("inf")
Bounds = dict[str, Any]


def reference(values: Sequence[Any]) -> Bounds:
    """Compute min and max; None without values, or with values that have no plain order."""
    present = [value for value in values if value is not None]
    plain = [value for value in present if value == value]
    low = min(plain, key=order_key, default=None)
    high = max(plain, key=order_key, default=None)
    if len(plain) < len(present) or (isinstance(high, float) and high == -INF):
        high = None
    return {"min": low, "max": high, "nulls": len(values) - len(present)}


def reference_merge(segments: Sequence[Bounds], kind: pa.DataType) -> Bounds:
    """Merge bounds; a float's bound that is unknown in one segment is unknown in the part."""
    lows, highs = ([bounds[end] for bounds in segments] for end in ("min", "max"))
    if not pa.types.is_floating(kind):
        lows, highs = ([end for end in ends if end is not None] for ends in (lows, highs))
    return {
        "min": None if None in lows else min(lows, key=order_key, default=None),
        "max": None if None in highs else max(highs, key=order_key, default=None),
        "nulls": sum(bounds["nulls"] for bounds in segments),
    }


@st.composite
def cut_columns(draw: st.DrawFn) -> tuple[pa.Array, list[int]]:
    """Generate a column, and the starts of its segments, none of which is empty."""
    kind = draw(st.sampled_from(ORDERED))
    column = draw(arrays(kind, min_size=1, max_size=25))
    starts = draw(st.sets(st.integers(0, len(column) - 1), max_size=5)) | {0}
    return column, sorted(starts)


def segments(values: list[Any], starts: Sequence[int]) -> list[list[Any]]:
    ends = [*starts[1:], len(values)]
    return [values[start:end] for start, end in zip(starts, ends, strict=True)]


def statistics_of(column: pa.Array, starts: Sequence[int]) -> pa.StructArray:
    batch = pa.record_batch([column], names=["c"])
    return segment_statistics(batch, np.array(starts, np.int64), list(batch.schema))


@settings(max_examples=300)
@given(cut_columns())
@example((pa.array([None, -INF, None, NAN, 1.0, None, NAN]), [0, 2, 3, 5]))
@example((pa.array([None, -128, 127, 127, -128, None], pa.int8()), [0, 1, 2, 4]))
def test_each_segment_has_the_bounds_of_its_values(case: tuple[pa.Array, list[int]]) -> None:
    column, starts = case
    statistics = statistics_of(column, starts)
    assert statistics.type == stats_type([pa.field("c", column.type)])
    expected = [{"c": reference(values)} for values in segments(column.to_pylist(), starts)]
    assert statistics.to_pylist() == expected


@given(cut_columns(), st.integers(1, 5))
def test_a_sliced_column_has_the_bounds_of_its_own_values(
    case: tuple[pa.Array, list[int]], padding: int
) -> None:
    column, starts = case
    padded = pa.concat_arrays([column[:1]] * padding + [column] + [column[:1]] * padding)
    sliced = padded.slice(padding, len(column))
    assert statistics_of(sliced, starts).equals(statistics_of(column, starts))


@settings(max_examples=300)
@given(st.data())
def test_merged_segments_have_the_bounds_of_all_their_values(data: Any) -> None:
    kind = data.draw(st.sampled_from(ORDERED))
    count = data.draw(st.integers(1, 4))
    extra = st.lists(st.integers(0, count - 1), max_size=6)
    groups = data.draw(extra.flatmap(lambda more: st.permutations([*range(count), *more])))
    runs, expected = [], [[] for _ in range(count)]
    for group in groups:
        column = data.draw(arrays(kind, min_size=1, max_size=6))
        runs.append(statistics_of(column, [0]))
        expected[group].append(reference(column.to_pylist()))
    merged = merge(pa.chunked_array(runs), np.array(groups, np.int64), count)
    assert merged.type == runs[0].type
    assert merged.to_pylist() == [{"c": reference_merge(part, kind)} for part in expected]


def test_a_column_is_merged_with_its_own_statistics_whatever_its_name() -> None:
    """Arrow reads a name that begins with a dot as the path of a nested field."""
    names = ["a", ".a", ".", ".a.min", "a.b", "[0]"]
    columns = [pa.array([10 * position, 10 * position + 1]) for position in range(len(names))]
    batch = pa.record_batch(columns, names=names)
    runs = pa.chunked_array([segment_statistics(batch, np.array([0]), list(batch.schema))])
    (merged,) = merge(runs, np.array([0]), 1).to_pylist()
    assert merged == {
        n: {"min": 10 * i, "max": 10 * i + 1, "nulls": 0} for i, n in enumerate(names)
    }


# --- choice of columns ------------------------------------------------------------------------

SCHEMA = pa.schema(
    [
        ("flag", pa.bool_()),
        ("name", pa.string()),
        ("price", pa.decimal128(9, 2)),
        ("tags", pa.list_(pa.int64())),
        *((f"n{i}", kind) for i, kind in enumerate(INTEGERS)),
        ("day", pa.date32()),
        ("wait", pa.duration("us")),
    ]
)


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        (["none"], []),
        (["auto"], ["n0", "n1", "n2", "n3", "day", "wait"]),
        (["all"], ["name", "price", "n0", "n1", "n2", "n3", "day", "wait"]),
        (["name", "n3"], ["name", "n3"]),
    ],
)
def test_the_option_chooses_columns(wanted: list[str], chosen: list[str]) -> None:
    assert choose(SCHEMA, wanted) == [SCHEMA.field(name) for name in chosen]


def test_auto_stops_at_32_columns() -> None:
    wide = pa.schema([(f"c{i}", pa.int64()) for i in range(40)])
    assert [field.name for field in choose(wide, ["auto"])] == [f"c{i}" for i in range(32)]
    assert len(choose(wide, ["all"])) == 40


def test_a_column_that_is_not_there_or_has_no_order_is_refused() -> None:
    with pytest.raises(KeyColumnMissing, match="'nmae'") as missing:
        choose(SCHEMA, ["nmae"])
    assert missing.value.option == "statistics"
    with pytest.raises(UnsupportedType, match="'tags'") as unordered:
        choose(SCHEMA, ["tags"])
    assert unordered.value.option == "statistics"
