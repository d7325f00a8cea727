"""The partitioning that a planner may rely on: it must hold for every part of the snapshot."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from layouts import write_options

from ffq_spark.exchange.scan.partitioning import partitioned_by, sorted_by
from ffq_spark.exchange.scan.snapshot import Snapshot, take_snapshot
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.options import ReadOptions
from ffq_spark.store import Store


def written(root: str, *orders: tuple[str, ...], keys: tuple[str, ...] = ("k",)) -> Snapshot:
    batch = pa.record_batch({"k": [1, 2], "f": [0.5, 1.5], "n": [[1], [2]]})
    for sort_by in orders:
        options = write_options(keys=keys, partitions=2, sort_by=sort_by)
        write_batches(root, [batch], options=options)
    return take_snapshot(Store(root), ReadOptions())


def test_rows_are_placed_by_keys_whose_hash_is_sparks(root: str) -> None:
    snapshot = written(root, ())
    assert partitioned_by(snapshot) == ("k",)
    by_ffq = replace(snapshot, founding=replace(snapshot.founding, hash="ffq"))
    assert partitioned_by(by_ffq) == ()
    raw = take_snapshot(Store(root), ReadOptions(query=snapshot.steps[0].body.query))
    assert partitioned_by(raw) == ()


def test_floats_place_nothing_because_spark_normalises_them(root: str) -> None:
    assert partitioned_by(written(root, (), keys=("k", "f"))) == ()


def test_the_order_is_what_all_steps_have_in_common(root: str) -> None:
    snapshot = written(root, ("k", "f"), ("k",))
    assert sorted_by(snapshot, ReadOptions()) == ("k",)
    assert sorted_by(written(root, ()), ReadOptions()) == ()


@pytest.mark.parametrize(
    "options", [ReadOptions(metadata_columns=True), ReadOptions(consolidate=True)]
)
def test_reads_that_do_not_keep_an_order_have_none(root: str, options: ReadOptions) -> None:
    assert sorted_by(written(root, ("k",)), options) == ()
