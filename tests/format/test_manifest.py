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
