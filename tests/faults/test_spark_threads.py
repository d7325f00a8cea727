"""Threads of one Spark session that write to one exchange at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import Place
from fault_rows import (
    PARTITIONS,
    ROWS,
    Write,
    exchange_at,
    markers,
    read_log,
    replay,
    rows_of,
    store_at,
    visible,
)

pytestmark = pytest.mark.spark

THREADS = 4
ROUNDS = 2


def save(spark: Any, place: Place, write: Write) -> None:
    # Spark looks up sinks in the thread's active session, and this call sets it.
    frame = spark.createDataFrame([(k, write.tag) for k in range(ROWS)], "k long, tag long")
    mode = "overwrite" if write.mode == "replace" else write.mode
    options = {"keys": "k", "partitions": str(PARTITIONS)}
    frame.write.format("ffqshuffle").mode(mode).options(**options).save(place.root)


@pytest.mark.parametrize("modes", [["append"] * 4, ["append", "replace"] * 2], ids=" ".join)
def test_writes_of_several_threads_are_one_serial_order(
    spark: Any, tmp_path: Path, modes: list[str]
) -> None:
    place = Place(str(tmp_path / "exchange"))
    written = [Write(n, modes[n % THREADS]) for n in range(THREADS * ROUNDS)]
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(lambda write: save(spark, place, write), written))
    log = read_log(place)
    assert sorted(log, key=lambda write: write.tag) == written
    assert visible(place) == rows_of(replay(log))
    assert not markers(store_at(place))
    assert exchange_at(place).verify(steps="all").ok
