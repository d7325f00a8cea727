"""Many readers, some of them slow, and a server that dies during reads."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from service_scene import Peak, free_port, random_rows, rows, serving, write

import ffq_spark as ffq

READERS, SLOW = 64, 8
CREDITS = 64 << 20
# Memory that the allocator keeps, and that 64 connections and their threads need.
KEPT, FIXED = 16 << 20, 32 << 20
LIMIT = CREDITS + KEPT + FIXED


def grown(root: str, credits: int, readers: int = READERS) -> int:
    """Return how much memory a server needs while this many readers get all rows.

    Slow readers stop after their first batch until all others have finished.
    """
    count = ffq.Exchange(root).info().rows
    flags = ["--server-credits", str(credits), "--max-readers", str(readers)]
    with serving(f"x={root}", *flags) as server:
        warm = ffq.connect(server.url)
        warm.exchange("x").read().read_all()
        sums: list[tuple[int, int]] = []
        failed: list[BaseException] = []
        fast_ones_left = threading.Semaphore(0)
        go_on = threading.Event()

        def read(slow: bool) -> None:
            try:
                with ffq.connect(server.url) as connection:
                    number = total = 0
                    for batch in connection.exchange("x").read():
                        number += batch.num_rows
                        total += pc.sum(batch["id"]).as_py()
                        if slow:
                            go_on.wait()
                    sums.append((number, total))
            except BaseException as error:
                failed.append(error)
            finally:
                if not slow:
                    fast_ones_left.release()

        threads = [threading.Thread(target=read, args=(n < SLOW,)) for n in range(readers)]
        with Peak(server.process.pid) as memory:
            for thread in threads:
                thread.start()
            for _ in range(readers - SLOW):
                fast_ones_left.acquire()
            assert len(sums) + len(failed) == readers - SLOW
            go_on.set()
            for thread in threads:
                thread.join()
        assert not failed
        assert sums == [(count, count * (count - 1) // 2)] * readers
        health = warm.health()
        assert (health["readers"], health["waiting"]) == (0, 0)
    print(f"{(memory.peak - memory.before) / 2**20:.0f} MiB for {readers} readers")
    return memory.peak - memory.before


ROWS, WIDTH = 40_000, 300


@pytest.mark.parametrize("partitions", [128, 2], ids=["small parts", "large parts"])
def test_64_readers_8_of_them_slow_all_get_their_rows_within_the_credits(
    root: str, partitions: int
) -> None:
    exchange = write(root, random_rows(ROWS, WIDTH), partitions=partitions)
    parts = exchange.parts()["bytes"].to_pylist()
    # Parts smaller than a share, or parts that exceed the limit if every reader holds one.
    assert (max(parts) < CREDITS // READERS) == (partitions == 128)
    assert partitions == 128 or max(parts) * READERS > 3 * LIMIT
    assert grown(root, CREDITS) < LIMIT


def test_compressed_parts_need_memory_for_one_column_more(root: str) -> None:
    """One reader at a time holds a column both compressed and decompressed."""
    write(root, random_rows(ROWS, WIDTH), partitions=2, compression="lz4")
    column = ROWS * WIDTH // 2
    assert grown(root, CREDITS) < LIMIT + 2 * column


def test_the_measure_of_memory_can_fail(root: str) -> None:
    """Readers with a budget for a whole part need more than the limit of the tests above."""
    write(root, random_rows(ROWS, WIDTH), partitions=2)
    assert grown(root, CREDITS << 8, readers=16) > LIMIT


@pytest.mark.parametrize("layout", ["parts", "packed"])
def test_a_server_that_is_killed_and_started_anew_gives_exact_rows(root: str, layout: str) -> None:
    count = 60_000
    for first in range(0, count, count // 2):
        write(root, rows(first, count // 2, width=200), layout=layout)
    local = ffq.Exchange(root)
    flags = ["--max-message-bytes", "100k", "--server-credits", "1m", "--max-readers", "4"]
    with serving(f"x={root}", *flags, port=free_port()) as server:
        connection = ffq.connect(server.url, retries=60)
        reader = connection.exchange("x").read(target_partition_bytes=2 << 20)
        batches = []
        for number, batch in enumerate(reader):
            batches.append(batch)
            if number in (3, 40, 41, 90):
                server.kill()
                server.start()
        assert number > 90
        table = pa.Table.from_batches(batches)
        assert sorted(table["id"].to_pylist()) == list(range(count))
        assert table.num_rows == local.info().rows == count


def test_readers_that_hang_up_leave_nothing_behind(root: str) -> None:
    write(root, rows(0, 60_000, width=300), partitions=1)
    options: dict[str, Any] = {"max_readers": 2, "server_credits": 1 << 20, "max_wait": 30}
    with ffq.serve({"x": root}, port=0, drain_seconds=0, **options) as service:
        for _ in range(10):
            with ffq.connect(service.url) as connection:
                reader = connection.exchange("x").read()
                reader.read_next_batch()
                del reader
        # Every reader slot was freed, because there were more readers than slots.
        assert ffq.connect(service.url).exchange("x").read().read_all().num_rows == 60_000


def test_files_are_not_held_open(root: str, tmp_path: Path) -> None:
    write(root, rows(0, 1_000))
    with serving(f"x={root}") as server:
        connection = ffq.connect(server.url)
        connection.exchange("x").read().read_all()
        assert not [f for f in psutil.Process(server.process.pid).open_files() if root in f.path]
