"""Rows of a table of parts, with different sets of columns."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ffq_spark.exchange.read.part import Part, list_parts
from ffq_spark.exchange.scan.pruned_parts import READ_SCHEMA
from ffq_spark.format.index import Chunk

LARGE = (1 << 64) - 1


@st.composite
def rows(draw: st.DrawFn) -> dict[str, object]:
    number = st.integers(0, 1 << 62)
    row: dict[str, object] = {}
    for field in READ_SCHEMA:
        if pa.types.is_string(field.type):
            row[field.name] = draw(st.text(max_size=5))
        elif pa.types.is_boolean(field.type):
            row[field.name] = draw(st.booleans())
        elif field.type.bit_width == 32:
            row[field.name] = draw(st.integers(0, 1 << 30))
        else:
            row[field.name] = draw(number | st.none() if field.nullable else number)
    return row


@given(st.lists(rows(), max_size=20))
def test_parts_are_the_rows_of_their_table(expected: list[dict[str, object]]) -> None:
    parts = list(list_parts(pa.Table.from_pylist(expected, READ_SCHEMA)))
    assert [{name: getattr(part, name) for name in READ_SCHEMA.names} for part in parts] == expected


def test_a_part_has_defaults_for_columns_that_the_plan_left_out() -> None:
    columns = {"file": ["a", "b"], "offset": [0, 8], "bytes": [8, 9], "checksum": [LARGE, None]}
    table = pa.table(columns, schema=pa.schema([(n, READ_SCHEMA.field(n).type) for n in columns]))
    assert list(list_parts(table)) == [
        Part("a", 0, 8, checksum=LARGE),
        Part("b", 8, 9, checksum=None),
    ]
    assert list(list_parts(table.slice(0, 0))) == []


def test_chunks_of_ffqs_frames_come_along() -> None:
    chunk = dict(zip(Chunk.__dataclass_fields__, range(7), strict=True))
    columns = {"file": ["a", "b"], "offset": [0, 0], "bytes": [8, 8], "chunks": [[chunk], None]}
    first, second = list_parts(pa.table(columns))
    assert (first.chunks, second.chunks) == ((Chunk(**chunk),), ())


def test_more_parts_than_one_block_keep_their_order() -> None:
    count = 10_000
    numbers = list(range(count))
    table = pa.table({"file": ["a"] * count, "offset": numbers, "bytes": numbers})
    assert [part.offset for part in list_parts(table)] == numbers
