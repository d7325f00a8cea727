"""The schema of a part comes from its first bytes; damage to them is an error of the part."""

from __future__ import annotations

from pathlib import Path

import ffq_reference as ffq
import numpy as np
import pyarrow as pa
import pytest

from ffq_spark.errors import CorruptPart
from ffq_spark.exchange.exchange import Exchange
from ffq_spark.store import Store


@pytest.mark.parametrize("columns", [2, 3_000])
@pytest.mark.parametrize("codec", ["plain", "none", "lz4", "zstd"])
def test_columns_are_known_from_the_first_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str, columns: int
) -> None:
    noise = np.random.default_rng(1).integers(0, 1 << 60, (columns, 600_000 // columns))
    rows = pa.record_batch({f"column {n}": column for n, column in enumerate(noise)})
    if codec == "plain":
        place = ffq.write_v1(tmp_path, (7, 0, 0, 1), {0: [rows]})
    else:
        place = ffq.write_v2(tmp_path, (7, 0, 0, 1), {0: [rows]}, codec)
    asked: list[int] = []
    read_range = Store.read_range

    def counted(store: Store, path: str, start: int, length: int | None) -> pa.Buffer:
        asked.append(length or 0)
        return read_range(store, path, start, length)

    monkeypatch.setattr(Store, "read_range", counted)
    assert Exchange(str(tmp_path)).info().schema.equals(rows.schema)
    size = (place / "part-0.ipc").stat().st_size
    assert 0 < sum(asked) < size / 3
    (place / "part-0.ipc").write_bytes(b"FFQS" if codec != "plain" else b"\xff\xff\xff\xff")
    with pytest.raises(CorruptPart):
        Exchange(str(tmp_path)).info()
