"""A read with `merge_by` through the service: one ticket, in order, within the reader's budget."""

from __future__ import annotations

import json
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from service_scene import Peak, random_rows, serving, write

import ffq_spark as ffq
from ffq_spark.errors import BadOption, BadRequest, KeyColumnMissing, NotSorted

ROWS = 3_000


def shuffled(seed: int, count: int = ROWS) -> pa.RecordBatch:
    rows = random_rows(count, 20)
    return rows.take(np.random.default_rng(seed).permutation(count))


@pytest.fixture(params=["parts", "packed"])
def remote(connect: Any, root: str, request: pytest.FixtureRequest) -> Any:
    """Serve two steps with a budget of 256 KiB for each reader, so that a merge spills."""
    for seed in range(2):
        write(root, shuffled(seed), sort_by=("group", "name"), layout=request.param)
    return connect({"x": root}, server_credits=2 << 20, max_readers=8).exchange("x")


def pairs(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(table[name].to_pylist() for name in ("group", "name")), strict=True))


@pytest.mark.parametrize("by", ["group, name", ["group", "name"], ("group",)], ids=str)
def test_rows_come_in_order_from_one_ticket(remote: Any, root: str, by: Any) -> None:
    (ticket,) = remote.tasks(merge_by=by, target_partition_bytes=100, min_tasks=5)
    table = remote.read(merge_by=by).read_all()
    local = ffq.Exchange(root).merge(by=by).read_all()
    assert sorted(map(str, table.to_pylist())) == sorted(map(str, local.to_pylist()))
    if len(by) > 1:
        assert pairs(table) == pairs(local) == sorted(pairs(local))
    assert table["group"].to_pylist() == sorted(table["group"].to_pylist())
    # The ticket returns the same rows again, and the rest of them to a reader that lost its server.
    for skip in (1, ROWS, 2 * ROWS):
        later = json.dumps({**json.loads(ticket), "skip": skip}).encode()
        batches = list(remote.read_task(later))
        assert pa.Table.from_batches(batches, table.schema).equals(table.slice(skip))


def test_order_columns_need_not_be_selected(remote: Any, root: str) -> None:
    options: dict[str, Any] = {"columns": ["id"], "partitions": "1-3", "metadata_columns": True}
    table = remote.read(merge_by="group,name", **options).read_all()
    local = ffq.Exchange(root).merge(by="group,name", **options).read_all()
    assert table.schema == local.schema
    assert table["id"].to_pylist() == local["id"].to_pylist()
    assert remote.lookup(5, merge_by="group")["id"].to_pylist() == [5, 5]


def test_errors_reach_the_client(remote: Any, root: str) -> None:
    with pytest.raises(NotSorted, match="step 1 is sorted by group, name, and mergeBy is name"):
        remote.read(merge_by="name")
    with pytest.raises(KeyColumnMissing):
        remote.read(merge_by="missing")
    with pytest.raises(BadOption):
        remote.read(merge_by="group,group")
    with pytest.raises(BadRequest):
        remote.read(merge_by=[5])
    write(root, shuffled(2))
    with pytest.raises(NotSorted, match="step 3 is not sorted"):
        remote.read(merge_by="group")


def test_merging_readers_stay_within_the_credits(root: str) -> None:
    """Eight readers merge 12 MB each; together with them the server holds its credits of 32 MiB."""
    readers, credits, kept = 8, 32 << 20, 48 << 20
    write(root, random_rows(40_000, 300), sort_by=("group", "name"))
    with serving(f"x={root}", "--server-credits", str(credits), "--max-readers", "8") as server:
        warm = ffq.connect(server.url)
        warm.exchange("x").read(merge_by="group", partitions=[0]).read_all()
        counts: list[int] = []

        def read() -> None:
            with ffq.connect(server.url) as connection:
                reader = connection.exchange("x").read(merge_by="group,name")
                counts.append(sum(batch.num_rows for batch in reader))

        threads = [threading.Thread(target=read) for _ in range(readers)]
        with Peak(server.process.pid) as memory:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    assert counts == [40_000] * readers
    print(f"{(memory.peak - memory.before) / 2**20:.0f} MiB")
    assert memory.peak - memory.before < credits + kept
