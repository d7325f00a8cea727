"""Manifests are read as they were written, in reading order; invalid manifests are refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffq_spark.errors import CorruptRecord
from ffq_spark.format import manifest
from ffq_spark.format.manifest import PART_FIELDS, manifest_schema

STATS = [pa.field("k", pa.int64()), pa.field("name", pa.string())]
i63 = st.integers(0, (1 << 63) - 1)


@st.composite
def rows(draw: st.DrawFn, map_task: int, stats: bool) -> dict[str, Any]:
    bounds = {"k": {"min": 1, "max": None, "nulls": 0}, "name": {"min": "", "max": "ä", "nulls": 2}}
    row = {
        "stage": 0,
        "map_task": map_task,
        "attempt": draw(st.integers(1, 9)),
        "reduce": draw(st.integers(0, 9_999)),
        "file": draw(st.text()),
        "offset": draw(i63),
        "bytes": draw(i63),
        "rows": draw(i63),
        "batches": draw(st.integers(0, (1 << 31) - 1)),
        "checksum": draw(st.none() | st.integers(0, (1 << 64) - 1)),
    }
    return row | ({"stats": bounds} if stats else {})


@st.composite
def manifests(draw: st.DrawFn, stats: bool) -> list[pa.Table]:
    """Generate one manifest for each map task, with each partition at most once."""
    schema = manifest_schema(STATS if stats else ())
    tables = []
    for map_task in range(draw(st.integers(0, 4))):
        parts = draw(st.lists(rows(map_task, stats), max_size=5, unique_by=lambda r: r["reduce"]))
        tables.append(pa.Table.from_pylist(parts, schema=schema))
    return tables


@given(st.booleans().flatmap(lambda stats: manifests(stats)))
def test_every_manifest_reads_back_as_it_was(tables: list[pa.Table]) -> None:
    for table in tables:
        assert manifest.decode(manifest.encode(table), "m").equals(table)


def with_statistics_of(*names: str) -> pa.Table:
    """Make a manifest of one part, with statistics of columns with these names."""
    fields = [pa.field(name, pa.int64()) for name in names]
    bounds = {"min": 1, "max": 2, "nulls": 0}
    (row,) = one_part().to_pylist()
    row["stats"] = dict.fromkeys(names, bounds)
    return pa.Table.from_pylist([row], schema=manifest_schema(fields))


def as_encoded_before(table: pa.Table) -> bytes:
    """Encode a manifest as versions did that mistook a name with a leading dot for a path."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema.remove_metadata()) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def test_statistics_that_may_be_of_another_column_are_not_used() -> None:
    table = with_statistics_of("a", ".a", ".", "a.b")
    found = manifest.decode(as_encoded_before(table), "m")
    assert found.schema == table.schema
    (stats,) = found["stats"].to_pylist()
    known = {name for name, bounds in stats.items() if bounds and None not in bounds.values()}
    assert known == {"a", "a.b"}
    again = manifest.decode(manifest.encode(found), "m")
    assert again["stats"].to_pylist() == [stats]
    plain = manifest.decode(as_encoded_before(table), "m", statistics=False)
    assert plain.equals(table.drop_columns(["stats"]))


def test_statistics_of_columns_with_a_leading_dot_read_back_as_they_were() -> None:
    table = with_statistics_of("a", ".a", ".").replace_schema_metadata({"more": "of it"})
    found = manifest.decode(manifest.encode(table), "m")
    assert found.equals(table) and (found.schema.metadata or {})[b"more"] == b"of it"
    ordinary = with_statistics_of("a", "a.b")
    assert pa.ipc.open_file(manifest.encode(ordinary)).schema.metadata is None


@given(st.data(), st.booleans())
def test_joining_keeps_every_part_and_orders_them_for_reading(data: Any, stats: bool) -> None:
    tables = data.draw(manifests(stats))
    fields = STATS if stats else []
    joined = manifest.join(tables, fields)
    assert joined.schema == manifest_schema(fields)
    joined_rows = joined.to_pylist()
    order = [(row["reduce"], row["stage"], row["map_task"]) for row in joined_rows]
    assert order == sorted(order)
    given_rows = [row for table in tables for row in table.to_pylist()]
    assert sorted(map(repr, joined_rows)) == sorted(map(repr, given_rows))


def one_part() -> pa.Table:
    row = dict.fromkeys((field.name for field in PART_FIELDS), 1) | {"file": "f"}
    return pa.Table.from_pylist([row], schema=manifest_schema())


def test_a_manifest_cut_anywhere_is_refused_with_its_file() -> None:
    data = manifest.encode(one_part())
    for cut in range(len(data)):
        with pytest.raises(CorruptRecord, match="not a readable manifest") as caught:
            manifest.decode(data[:cut], "_ffq/manifests/1.arrow")
        assert caught.value.path == "_ffq/manifests/1.arrow"


@pytest.mark.parametrize("name", [field.name for field in PART_FIELDS])
def test_a_column_that_is_missing_or_of_another_type_is_named(name: str) -> None:
    table = one_part()
    position = table.schema.get_field_index(name)
    other = pa.field(name, pa.binary())
    for wrong in (
        table.drop_columns([name]),
        table.set_column(position, other, pa.array([b"x"])),
    ):
        for statistics in (True, False):
            with pytest.raises(CorruptRecord, match=f"no proper column {name}"):
                manifest.decode(manifest.encode(wrong), "m", statistics=statistics)


def test_any_flipped_bit_changes_the_digest() -> None:
    data = manifest.encode(one_part())
    digest = manifest.digest(data)
    for position in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[position // 8] ^= 1 << position % 8
        assert manifest.digest(bytes(damaged)) != digest
