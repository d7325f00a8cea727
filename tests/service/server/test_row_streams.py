"""Parts larger than the budget of a reader, and damaged parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from service_scene import rows, sorted_rows, write

from ffq_spark.errors import (
    CorruptPart,
)

PAYLOADS = [("arrow", "none"), ("arrow", "zstd"), ("ffqs", "none"), ("ffqs", "lz4")]


@pytest.mark.parametrize(("payload", "compression"), PAYLOADS)
@pytest.mark.parametrize("layout", ["parts", "packed"])
def test_parts_of_any_size_are_read_in_pieces(
    connect: Any, root: str, payload: str, compression: str, layout: str
) -> None:
    options = {"payload": payload, "compression": compression, "layout": layout, "partitions": 2}
    local = write(root, rows(0, 3_000, width=200), **options)
    assert min(local.parts()["bytes"].to_pylist()) > 5_000
    remote = connect({"x": root}, server_credits=8_000, max_readers=2).exchange("x")
    for given in ({}, {"columns": ["name"]}, {"metadata_columns": True}):
        expected = local.read(**given).read_all()
        assert sorted_rows(remote.read(**given).read_all()) == sorted_rows(expected)


@pytest.mark.part_files
@pytest.mark.parametrize("credits", [1_000, 1 << 30], ids=["in pieces", "whole"])
@pytest.mark.parametrize("damage", ["flip", "cut", "grow", "gone"])
def test_a_damaged_part_is_an_error_that_names_it_and_no_row_of_it_is_given(
    connect: Any, root: str, credits: int, damage: str
) -> None:
    local = write(root, rows(0, 2_000, width=100), partitions=1)
    (part,) = local.parts()["file"].to_pylist()
    path = Path(root, part)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    changed = {"flip": data, "cut": data[:-8], "grow": data + b"x"}
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(changed[damage])
    remote = connect({"x": root}, server_credits=credits, max_readers=1).exchange("x")
    reader = remote.read()
    with pytest.raises(CorruptPart) as caught:
        reader.read_next_batch()
    assert f"x/{part}" in str(caught.value) and root not in str(caught.value)
