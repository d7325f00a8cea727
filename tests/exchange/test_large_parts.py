"""Parts and batches larger than what may be held: the same rows, all of them checked."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ffq_spark import Exchange
from ffq_spark.errors import CorruptPart
from ffq_spark.exchange.exchange import python_options
from ffq_spark.exchange.large_parts import Limits, read_bounded
from ffq_spark.exchange.part_file import PIECE_BYTES, PartBytes, check_part, take
from ffq_spark.exchange.snapshot import take_snapshot
from ffq_spark.exchange.write import write_batches
from ffq_spark.options import WriteOptions
from ffq_spark.store import Store


def written(root: str, count: int, **options: Any) -> Exchange:
    batch = pa.record_batch(
        {
            "id": list(range(count)),
            "name": [None if i % 7 == 0 else f"{i:0100d}" for i in range(count)],
            "tags": [[i % 3] * (i % 4) for i in range(count)],
        }
    )
    write_batches(root, [batch], options=WriteOptions(keys=("id",), partitions=2, **options))
    return Exchange(root)


def bounded(root: str, limits: Limits, columns: list[str] | None = None) -> Any:
    store = Store(root)
    snapshot = take_snapshot(store, python_options({}))
    parts = snapshot.parts([], None)
    return read_bounded(store, parts, snapshot.exchange.schema, limits, columns=columns)


@pytest.mark.parametrize("layout", ["parts", "packed"])
@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
@pytest.mark.parametrize("payload", ["arrow", "ffqs"])
def test_rows_are_the_same_whatever_may_be_held(
    root: str, payload: str, compression: str, layout: str
) -> None:
    options = {"payload": payload, "compression": compression, "layout": layout}
    whole = written(root, 3_000, **options).read().read_all()
    for limit in (1, 100, 5_000, 60_000, 200_000, 1 << 24):
        for columns in (None, ["name"], ["tags", "id"]):
            if limit == 1 and columns != ["name"]:
                continue
            found = list(bounded(root, Limits(limit, threading.Lock()), columns))
            expected = whole if columns is None else whole.select(columns)
            assert pa.Table.from_batches(found).equals(expected)
            fixed = 1_000
            assert limit < fixed or max(b.nbytes for b in found) < 2 * limit


@pytest.mark.part_files
def test_a_file_that_changes_after_it_was_checked_is_an_error_before_its_bytes_are_used(
    root: str,
) -> None:
    part = written(root, 20_000).parts().to_pylist()[0]
    assert part["bytes"] > 2 * PIECE_BYTES
    store, path = Store(root), Path(root, part["file"])
    source = PartBytes(store, part, check_part(store, part))
    data = bytearray(path.read_bytes())
    data[PIECE_BYTES + 5] ^= 1
    path.write_bytes(data)
    assert take(source, PIECE_BYTES) == data[:PIECE_BYTES]
    with pytest.raises(CorruptPart, match="changed while it was read"):
        take(source, 1)
