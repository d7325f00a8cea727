"""Reads through the service return exactly the rows that the exchange itself returns."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from service_scene import MANY, rows, sorted_rows, write

import ffq_spark as ffq


def test_strings_of_any_bytes_are_read_and_looked_up(connect: Any, root: str) -> None:
    texts = pa.array([b"a", b"\xff"], pa.binary()).view(pa.string())
    write(root, pa.record_batch({"id": texts, "v": [1, 2]}), statistics=("all",))
    exchange = connect({"orders": root}).exchange("orders")
    assert exchange.read().read_all().num_rows == 2
    assert exchange.lookup("\udcff")["v"].to_pylist() == [2]


def test_the_tickets_of_a_read_give_every_row_once_in_any_order(
    connect: Any, two_steps: ffq.Exchange
) -> None:
    exchange = connect({"orders": two_steps.root}).exchange("orders")
    tickets = exchange.tasks(target_partition_bytes=5_000)
    assert len(tickets) > 3
    batches = [batch for ticket in reversed(tickets) for batch in exchange.read_task(ticket)]
    assert sorted(pa.Table.from_batches(batches)["id"].to_pylist()) == list(range(MANY + 100))


READS: list[dict[str, Any]] = [
    {},
    {"columns": ["name", "id"]},
    {"columns": "group"},
    {"partitions": [0, 3]},
    {"partitions": "2-4"},
    {"steps": "1"},
    {"steps": "latest"},
    {"steps": "all"},
    {"as_of_step": 1},
    {"metadata_columns": True},
    {"columns": ["id"], "metadata_columns": True, "partitions": 1},
]


@pytest.mark.parametrize("options", READS, ids=str)
@pytest.mark.parametrize("layout", ["parts", "packed"])
def test_a_read_gives_what_the_exchange_itself_gives(
    connect: Any, root: str, options: dict[str, Any], layout: str
) -> None:
    write(root, rows(0, MANY), layout=layout)
    local = write(root, rows(MANY, 100), layout=layout)
    remote = connect({"orders": root}).exchange("orders")
    expected = local.read(**options).read_all()
    table = remote.read(target_partition_bytes=4_000, **options).read_all()
    assert table.schema == expected.schema
    assert sorted_rows(table) == sorted_rows(expected) and table.num_rows


def test_one_query_of_an_exchange_is_read(connect: Any, two_steps: ffq.Exchange) -> None:
    query = two_steps.steps()[1].body.query
    remote = connect({"orders": two_steps.root}).exchange("orders")
    assert remote.read(query=query).read_all().num_rows == 100
    assert remote.read(query=query, attempt=0).read_all().num_rows == 100


@pytest.mark.parametrize("key", [5, 77, MANY + 3, 10**9])
def test_a_key_opens_one_partition_and_gives_its_rows_alone(
    connect: Any, two_steps: ffq.Exchange, key: int
) -> None:
    remote = connect({"orders": two_steps.root}).exchange("orders")
    expected = two_steps.lookup(key)
    assert remote.lookup(key).to_pylist() == expected.to_pylist()
    assert remote.lookup(key, columns=["name"]).to_pylist() == [
        {"name": row["name"]} for row in expected.to_pylist()
    ]
    info = remote.flight_info(key=[key])
    assert info.total_records == -1 and len(info.endpoints) <= 1


def test_rows_with_weights_are_consolidated(connect: Any, root: str) -> None:
    batch = pa.record_batch({"id": [1, 2, 2, 3], "w": [1, 1, 1, 1]})
    write(root, batch, weight_column="w")
    write(root, pa.record_batch({"id": [1, 3], "w": [-1, 4]}))
    remote = connect({"z": root}).exchange("z")
    table = remote.read(consolidate=True).read_all()
    assert sorted_rows(table) == [{"id": 2, "w": 2}, {"id": 3, "w": 5}]


def test_an_exchange_on_any_storage_is_served(place: Any) -> None:
    local = write(place.root, rows(0, 500), storage=place.storage_options)
    options = {"port": 0, "storage_options": place.storage_options}
    with ffq.serve({"x": place.root}, **options) as service:
        remote = ffq.connect(service.url).exchange("x")
        assert sorted_rows(remote.read().read_all()) == sorted_rows(local.read().read_all())


@pytest.mark.parametrize("layout", ["parts", "packed"])
def test_a_read_goes_on_with_any_row_whatever_the_server_holds(
    connect: Any, root: str, layout: str
) -> None:
    """The order of rows depends on the ticket alone, not on credits or messages."""
    write(root, rows(0, 500), layout=layout)
    write(root, rows(500, 500), layout=layout)
    small = connect({"x": root}, server_credits=1 << 10, max_readers=1, max_message_bytes=200)
    large = connect({"x": root})
    (ticket,) = large.exchange("x").tasks()
    whole = pa.Table.from_batches(list(large.exchange("x").read_task(ticket)))
    for skip in (0, 1, 499, 777, 1000, 2000):
        later = json.dumps({**json.loads(ticket), "skip": skip}).encode()
        batches = list(small.exchange("x").read_task(later))
        table = pa.Table.from_batches(batches, whole.schema)
        assert table.to_pylist() == whole.slice(skip).to_pylist()
