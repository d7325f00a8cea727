"""Exchanges are found at a path or directly below it; other directories are ignored."""

from __future__ import annotations

from pathlib import Path

import ffq_reference as ffq
import pyarrow as pa
from layouts import write_options

from ffq_spark.exchange.catalog import find_exchanges, is_exchange
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.store import Store

BATCH = pa.record_batch({"k": [1, 2]})


def test_exchanges_of_both_kinds_are_found_directly_below_a_path(tmp_path: Path) -> None:
    write_batches(str(tmp_path / "orders"), [BATCH], options=write_options(partitions=1))
    ffq.write_v1(tmp_path / "raw", (7, 0, 0, 1), {0: [BATCH]})
    write_batches(str(tmp_path / "deep/items"), [BATCH], options=write_options(partitions=1))
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    roots = [exchange.root for exchange in find_exchanges(f"{tmp_path}/")]
    assert roots == [f"{tmp_path}/orders", f"{tmp_path}/raw"]
    assert [exchange.root for exchange in find_exchanges(roots[0])] == [roots[0]]


def test_only_ffqs_own_names_make_an_exchange(tmp_path: Path) -> None:
    (tmp_path / "shuffle/notes").mkdir(parents=True)
    assert not is_exchange(Store(str(tmp_path)))
    (tmp_path / "shuffle/7").mkdir()
    assert is_exchange(Store(str(tmp_path)))
    assert is_exchange(Store(str(tmp_path.parent)), f"{tmp_path.name}/")
    assert list(find_exchanges(str(tmp_path / "nowhere"))) == []
