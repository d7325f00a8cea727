"""Bounds of columns from manifests are exact, or unknown."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ffq_spark.exchange.compute.bounds import Bounds, bounds


def manifest(*values: bytes) -> pa.Table:
    """Make a manifest of parts with one row, and statistics of a string column with these bytes."""
    strings = pa.array(values, pa.binary()).view(pa.string())
    nulls = pa.array([0] * len(values), pa.int64())
    column = pa.StructArray.from_arrays([strings, strings, nulls], ["min", "max", "nulls"])
    stats = pa.StructArray.from_arrays([column], ["s"])
    return pa.table({"rows": [1] * len(values), "stats": stats})


def test_bounds_of_text_are_known() -> None:
    assert bounds([manifest(b"b", b"a")], ["s"]) == {"s": Bounds("a", "b", 0)}


@pytest.mark.parametrize("invalid", [b"\xff", b"a\xc3"])
def test_bounds_of_bytes_that_are_no_text_are_not_known(invalid: bytes) -> None:
    assert bounds([manifest(b"b", invalid)], ["s"]) == {}


def test_bounds_are_those_of_the_named_column() -> None:
    """Arrow reads a name that begins with a dot as the path of a nested field."""
    names = ["a", ".a", ".", ".a.min"]
    row = {name: {"min": place, "max": place + 1, "nulls": 0} for place, name in enumerate(names)}
    table = pa.table({"rows": [1], "stats": pa.array([row])})
    assert bounds([table], names) == {n: Bounds(i, i + 1, 0) for i, n in enumerate(names)}
