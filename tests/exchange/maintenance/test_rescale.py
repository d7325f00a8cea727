"""Rescale: later steps have another number of partitions, and all steps are read together."""

from __future__ import annotations

import math
import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from conftest import Place
from faults.fault_rows import table_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from layouts import write_options

from ffq_spark import Exchange
from ffq_spark.errors import BadOption, Conflict, ExchangeMismatch, ExchangeNotFound
from ffq_spark.exchange.compute.keys import key_predicates
from ffq_spark.exchange.ledger import routing
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.ledger.log_checkpoint import LogCheckpoint
from ffq_spark.exchange.ledger.step_log import Steps
from ffq_spark.exchange.maintenance.rescale import rescale
from ffq_spark.exchange.scan.partitioning import partitioned_by
from ffq_spark.exchange.scan.snapshot import take_snapshot
from ffq_spark.exchange.scan.tasks import partition_tasks
from ffq_spark.exchange.write.attempt_writer import write_attempt
from ffq_spark.exchange.write.commit import commit_write
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.exchange.write.prepare import prepare
from ffq_spark.format import paths
from ffq_spark.format.hashing import partition_ids
from ffq_spark.format.records import RoutingRecord
from ffq_spark.options import ReadOptions
from ffq_spark.store import Store

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def batch(first: int, count: int = 100) -> pa.RecordBatch:
    numbers = range(first, first + count)
    return pa.record_batch({"k": [n % 37 for n in numbers], "v": numbers}, SCHEMA)


def append(root: str, first: int, *, store: Store | None = None, **options: Any) -> None:
    options = {"keys": ("k",), **options}
    write_batches(root, [batch(first)], options=write_options(**options), store=store)


def test_each_step_keeps_the_partitions_that_it_was_written_with(place: Place) -> None:
    store = Store(place.root, place.storage_options)
    exchange = Exchange(place.root, store=store)
    append(place.root, 0, store=store, partitions=8)
    assert exchange.rescale(12).epoch == 1
    assert (exchange.info().partitions, exchange.info().write_partitions) == (8, 12)
    append(place.root, 100, store=store)
    assert [step.body.partitions for step in exchange.steps()] == [8, 12]
    assert (exchange.info().partitions, exchange.info().write_partitions) == (4, 12)
    assert max(exchange.parts(steps="2")["reduce"].to_pylist()) > 8
    assert table_rows(exchange.read().read_all()) == table_rows(
        pa.Table.from_batches([batch(0), batch(100)])
    )
    assert exchange.verify().ok


def test_a_look_up_opens_only_the_part_of_each_steps_own_partitions(root: str) -> None:
    append(root, 0, partitions=4)
    Exchange(root).rescale(64)
    append(root, 100)
    exchange = Exchange(root)
    found = exchange.lookup(5)
    assert sorted(found["v"].to_pylist()) == [n for n in range(200) if n % 37 == 5]
    opened = parts_of_key(root, 5)
    places = [partition_ids([pa.array([5])], count).item() for count in (4, 64)]
    assert opened == list(zip([1, 2], places, strict=True))


def parts_of_key(root: str, key: int) -> list[tuple[int, int]]:
    """Return the step and the partition of every part that a look-up opens."""
    snapshot = take_snapshot(Store(root), ReadOptions())
    parts = snapshot.parts(key_predicates(snapshot.exchange, key))
    return list(zip(parts["step"].to_pylist(), parts["reduce"].to_pylist(), strict=True))


COUNTS = st.lists(st.integers(1, 24), min_size=1, max_size=5)


@settings(max_examples=40)
@given(counts=COUNTS, partition=st.integers(0, 23), key=st.integers(-1, 40))
def test_partitions_and_keys_select_the_same_rows_after_any_rescales(
    counts: list[int], partition: int, key: int
) -> None:
    root = f"memory://{uuid.uuid4().hex}"
    append(root, 0, partitions=counts[0])
    for number, count in enumerate(counts[1:], start=1):
        Exchange(root).rescale(count)
        append(root, 100 * number)
    exchange = Exchange(root)
    common = math.gcd(*counts)
    assert exchange.info().partitions == common
    rows = pa.Table.from_batches([batch(100 * n) for n in range(len(counts))])
    place = partition % common
    ids = partition_ids([rows["k"].combine_chunks()], common)
    expected = table_rows(rows.filter(pa.array(ids == place)))
    assert table_rows(exchange.read(partitions=[place]).read_all()) == expected
    assert table_rows(exchange.lookup(key)) == table_rows(rows.filter(pc.field("k") == key))
    snapshot = take_snapshot(Store(root), ReadOptions())
    tasks = partition_tasks(snapshot.parts(), common)
    assert [sum(task["rows"].to_pylist()) for task in tasks] == np.bincount(
        ids, minlength=common
    ).tolist()


@pytest.mark.usefixtures("small_checkpoints")
def test_log_checkpoints_know_the_partitions_of_their_steps(root: str) -> None:
    append(root, 0, partitions=6)
    for number in range(1, 20):
        if number == 9:
            Exchange(root).rescale(4)
        append(root, 100 * number)
    snapshot = take_snapshot(Store(root), ReadOptions())
    assert snapshot.partition_counts == {4, 6} and snapshot.exchange.partitions == 2
    assert isinstance(snapshot.steps, Steps)
    assert any(isinstance(piece, LogCheckpoint) for piece in snapshot.steps.pieces)
    assert sorted(Exchange(root).lookup(3)["v"].to_pylist()) == [
        n for n in range(2000) if n % 37 == 3
    ]
    late = take_snapshot(Store(root), ReadOptions(steps="15..20"))
    assert late.exchange.partitions in (2, 4)


def test_steps_with_few_partitions_in_common_are_shuffled(root: str) -> None:
    append(root, 0, partitions=64)
    Exchange(root).rescale(48)
    append(root, 100)
    assert partitioned_by(take_snapshot(Store(root), ReadOptions())) == ("k",)
    Exchange(root).rescale(63)
    append(root, 200)
    assert partitioned_by(take_snapshot(Store(root), ReadOptions())) == ()


def test_an_overwrite_leaves_only_the_new_number(root: str) -> None:
    append(root, 0, partitions=8)
    Exchange(root).rescale(3)
    write_batches(root, [batch(0)], options=write_options(), mode="replace")
    assert Exchange(root).info().partitions == 3
    Exchange(root).rollback(1)
    assert Exchange(root).info().partitions == 8
    assert Exchange(root).verify(steps="all").ok


def test_a_write_that_is_under_way_keeps_its_partitions(root: str) -> None:
    append(root, 0, partitions=8)
    store = Store(root)
    options = write_options()
    exchange = prepare(store, options, SCHEMA)
    query = Ledger(store).begin("append", "i")
    job = WriteJob.of(exchange, query, options)
    output = write_attempt(store, job, 0, 1, [batch(100)])
    Exchange(root).rescale(12)
    step = commit_write(store, job, [output])
    assert step is not None and step.body.partitions == 8
    append(root, 200)
    assert [each.body.partitions for each in Exchange(root).steps()] == [8, 8, 12]
    assert Exchange(root).verify().ok


def test_a_job_may_go_on_to_name_an_earlier_number(root: str) -> None:
    append(root, 0, partitions=8)
    Exchange(root).rescale(16)
    append(root, 100, partitions=8)
    append(root, 200, partitions=16)
    assert [step.body.partitions for step in Exchange(root).steps()] == [8, 16, 16]
    with pytest.raises(ExchangeMismatch, match=r"partitions of .* has 16, not 32"):
        append(root, 300, partitions=32)


def test_a_first_write_with_another_number_is_refused_at_its_commit(root: str) -> None:
    store = Store(root)
    options = write_options(keys=("k",), partitions=4)
    exchange = prepare(store, options, SCHEMA)
    append(root, 0, partitions=8)
    query = Ledger(store).begin("append", "i")
    job = WriteJob.of(exchange, query, options)
    output = write_attempt(store, job, 0, 1, [batch(100)])
    with pytest.raises(ExchangeMismatch, match=r"partitions of .* has 8, not 4"):
        commit_write(store, job, [output])


def test_of_two_rescales_at_once_one_wins(root: str) -> None:
    append(root, 0, partitions=8)
    store = Store(root)
    other = RoutingRecord(1, 99, 0)

    class Racing(Store):
        def create_once(self, path: str, data: bytes) -> bool:
            if path == paths.routing(1):
                assert store.create_once(path, other.encode())
            return super().create_once(path, data)

    with pytest.raises(Conflict, match="epoch 1"):
        rescale(Racing(root), 16)
    assert routing.routings(store) == [other]
    assert rescale(store, 16).epoch == 2
    assert rescale(store, 16).epoch == 2


@pytest.mark.parametrize("partitions", [0, -1, 10_001])
def test_a_number_out_of_range_is_refused(root: str, partitions: int) -> None:
    append(root, 0, partitions=8)
    with pytest.raises(BadOption, match="must be from 1 to 10000"):
        Exchange(root).rescale(partitions)


def test_what_cannot_be_rescaled_says_why(root: str) -> None:
    with pytest.raises(ExchangeNotFound):
        Exchange(root).rescale(8)
    write_batches(root, [batch(0)], options=write_options(partitions=1))
    with pytest.raises(BadOption, match="need keys"):
        Exchange(root).rescale(8)
