"""Ranges cover every part exactly once, and join neighbouring parts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ffq_spark.exchange.read.ranges import MAX_GAP, count_ranges, join_ranges
from ffq_spark.format.manifest import with_file_ends


def table(rows: list[tuple[str, int, int]]) -> pa.Table:
    schema = pa.schema([("file", pa.string()), ("offset", pa.int64()), ("bytes", pa.int64())])
    names = schema.names
    documents = [dict(zip(names, row, strict=True)) for row in rows]
    return with_file_ends(pa.Table.from_pylist(documents, schema))


def ranges(rows: list[tuple[str, int, int]], limit: int) -> list[tuple[str, int, int]]:
    return [(r.file, r.start, r.length) for r in join_ranges(table(rows), limit)]


@st.composite
def parts(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    """Generate parts of a few packed files, in any order and with gaps."""
    placed = []
    for file in "abc":
        offset = 0
        for size in draw(st.lists(st.integers(1, 200), max_size=12)):
            gap = draw(st.sampled_from([0, 0, 0, 50, MAX_GAP, MAX_GAP + 1]))
            if draw(st.booleans()):
                placed.append((file, offset, size))
            offset += size + gap
    return draw(st.permutations(placed))


@given(parts(), st.integers(1, 2 * MAX_GAP))
def test_every_part_lies_in_exactly_one_range(rows: list[tuple[str, int, int]], limit: int) -> None:
    covered = []
    for range in join_ranges(table(rows), limit):
        inside = range.parts
        assert range.start == inside[0].offset
        for part in inside:
            assert part.file == range.file
            assert part.offset >= range.start
            assert part.offset + part.bytes <= range.start + range.length
            covered.append((part.file, part.offset, part.bytes))
        assert range.length <= limit or len(inside) == 1
        gaps = range.length - sum(part.bytes for part in inside)
        assert gaps <= MAX_GAP * (len(inside) - 1)
    assert sorted(covered) == sorted(rows)


@given(parts(), st.integers(1, 2 * MAX_GAP))
def test_ranges_are_counted_as_they_are_joined(
    rows: list[tuple[str, int, int]], limit: int
) -> None:
    assert count_ranges(table(rows), limit) == len(ranges(rows, limit))


def test_neighbours_are_joined_up_to_the_limit() -> None:
    rows = [("a", n * 10, 10) for n in range(10)]
    assert ranges(rows, 1000) == [("a", 0, 100)]
    assert ranges(rows, 40) == [("a", 0, 40), ("a", 40, 40), ("a", 80, 20)]
    assert ranges(rows, 5) == [("a", n * 10, 10) for n in range(10)]


def test_small_gaps_are_read_over_and_large_ones_are_not() -> None:
    near, far = MAX_GAP, 10 + 2 * MAX_GAP + 1
    assert ranges([("a", 0, 10), ("a", 10 + near, 10)], 1 << 30) == [("a", 0, 20 + near)]
    assert len(ranges([("a", 0, 10), ("a", far, 10)], 1 << 30)) == 2


def test_files_of_their_own_keep_the_order_of_the_parts() -> None:
    rows = [(f"part-{n}.ipc", 0, 8) for n in (3, 1, 2)]
    assert ranges(rows, 1 << 30) == rows
    assert [range.spans[0][1] for range in join_ranges(table(rows), 1 << 30)] == [9, 9, 9]


def test_one_byte_more_is_asked_for_at_the_end_of_a_file_alone() -> None:
    rows = [("b", 0, 8), ("a", 20, 10), ("a", 0, 10), ("a", 10, 10)]
    requests = [(range.file, *range.spans[0]) for range in join_ranges(table(rows), 20)]
    assert requests == [("b", 0, 9), ("a", 0, 20), ("a", 20, 11)]
    without_its_end = table(rows).filter([True, False, True, True])
    assert [range.spans[0][1] for range in join_ranges(without_its_end, 20)] == [9, 20]


def test_a_part_that_is_marked_has_a_range_of_its_own() -> None:
    rows = table([("a", 0, 10), ("a", 10, 10), ("a", 20, 10)])
    separate = np.array([False, True, False])
    ranges = [(range.start, range.separate) for range in join_ranges(rows, 100, separate)]
    assert ranges == [(0, False), (10, True), (20, False)]


def test_parts_that_overlap_are_never_joined() -> None:
    assert ranges([("a", 0, 10), ("a", 5, 10)], 100) == [("a", 0, 10), ("a", 5, 10)]


def test_no_parts_are_no_ranges() -> None:
    assert ranges([], 100) == []
