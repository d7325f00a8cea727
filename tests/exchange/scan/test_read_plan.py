"""The plan of a read lists its tasks, their sizes and the heavy partitions, without data."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from layouts import write_options

from ffq_spark import Exchange
from ffq_spark.errors import BadOption, KeyColumnMissing, UnknownOption
from ffq_spark.exchange.scan.read_plan import ReadPlan
from ffq_spark.exchange.write.local_write import write_batches

HOT = 5
"""The partition of key 1 among 8."""


def write(root: str, steps: int = 2, **options: Any) -> Exchange:
    """Write steps in which one of 3001 keys has most rows."""
    keys = pa.array([*[1] * 30_000, *range(3000)], pa.int64())
    rows = pa.record_batch({"k": keys, "v": pa.array(range(len(keys)), pa.int64())})
    resolved = write_options(**{"keys": ("k",), "partitions": 8, **options})
    for _ in range(steps):
        write_batches(root, [rows], options=resolved)
    return Exchange(root)


@pytest.fixture
def exchange(root: str) -> Exchange:
    return write(root)


def planned(exchange: Exchange, **options: Any) -> ReadPlan:
    return exchange.plan(**{"target_partition_bytes": 300_000, **options})


def test_a_plan_is_made_without_data(exchange: Exchange) -> None:
    before = planned(exchange, split="hash")
    shutil.rmtree(Path(exchange.root, "shuffle"))
    assert planned(exchange, split="hash") == before


def test_the_tasks_of_each_split(exchange: Exchange) -> None:
    parts = exchange.parts()
    hot = sum(p["bytes"] for p in parts.to_pylist() if p["reduce"] == HOT)
    never, by_map, by_hash = (planned(exchange, split=s) for s in ("never", "map", "hash"))
    for plan in (never, by_map, by_hash):
        assert (plan.parts, plan.rows) == (16, 66_000)
        assert plan.bytes == sum(parts["bytes"].to_pylist())
        assert [heavy.partition for heavy in plan.heavy] == [HOT]
        assert plan.heavy[0].bytes == hot
    assert [t.partitions for t in never.tasks] == [(0, 1, 2, 3, 4), (HOT,), (6, 7)]
    assert never.read_bytes == by_map.read_bytes == never.bytes and never.largest == hot
    assert [t.shards for t in by_map.tasks] == [1, 2, 2, 1] and by_map.largest < hot
    count = -(-hot // 300_000)
    assert [t.shard for t in by_hash.tasks] == [0, *range(count), 0]
    assert by_hash.read_bytes == by_hash.bytes + (count - 1) * hot
    assert by_hash.median == by_hash.largest == hot


def test_the_advice_says_what_to_do_about_a_heavy_partition(root: str) -> None:
    exchange = write(root, weight_column="v")

    def advice(**options: Any) -> str:
        (heavy,) = planned(exchange, **options).heavy
        return heavy.advice

    assert advice(split="map", target_partition_bytes="400k") == ""
    assert "each of its 4 tasks reads all of it" in advice(split="hash")
    for options in (
        {"split": "never"},
        {"split": "map", "target_partition_bytes": 100_000},
        {"split": "map", "consolidate": True},
    ):
        assert "split=hash divides it by keys" in advice(**options)
    assert "split=map" in advice(split="never")
    assert "split=map" not in advice(split="never", consolidate=True)
    assert "maxTasks allows no more" in advice(split="hash", max_tasks=2)


def test_without_keys_more_map_tasks_are_the_remedy(root: str) -> None:
    batch = pa.record_batch({"v": pa.array(range(9000), pa.int64())})
    write_batches(root, [batch], options=write_options(keys=(), partitions=1))
    (heavy,) = Exchange(root).plan(target_partition_bytes=10_000).heavy
    assert "more map tasks write more parts" in heavy.advice
    (heavy,) = Exchange(root).plan(target_partition_bytes=10_000, split="never").heavy
    assert "split=map" in heavy.advice and "hash" not in heavy.advice


def test_a_plan_takes_the_options_of_a_read(exchange: Exchange) -> None:
    assert exchange.plan(as_of_step=1).parts == 8
    assert exchange.plan(partitions=[HOT]).tasks[0].partitions == (HOT,)
    assert len(exchange.plan(min_tasks=4).tasks) == 4
    with pytest.raises(UnknownOption, match="did you mean split"):
        exchange.plan(splits="hash")  # type: ignore[call-arg]
    with pytest.raises(KeyColumnMissing):
        exchange.plan(columns=["x"])
    with pytest.raises(BadOption, match="without a weightColumn"):
        exchange.plan(consolidate=True)


def test_an_exchange_without_rows_has_no_tasks(root: str) -> None:
    batch = pa.record_batch({"k": pa.array([], pa.int64())})
    write_batches(root, [batch], options=write_options(keys=("k",), partitions=8))
    plan = Exchange(root).plan(split="hash")
    assert (plan.tasks, plan.largest, plan.median, plan.requests) == ((), 0, 0, 0)


def test_neighbouring_parts_of_a_packed_file_are_one_request(root: str) -> None:
    plan = planned(write(root, layout="packed"), split="hash")
    assert [task.requests for task in plan.tasks] == [2] * len(plan.tasks)
