"""A snapshot is taken once: its steps, and the parts that filters select."""

from __future__ import annotations

import pyarrow as pa
import pytest
from layouts import write_options

from ffq_spark.errors import BadOption, ExchangeNotFound, PartitionNotFound, StepNotFound
from ffq_spark.exchange.compute.pruning import Predicate
from ffq_spark.exchange.scan.pruned_parts import READ_SCHEMA
from ffq_spark.exchange.scan.snapshot import open_exchange, take_snapshot
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.options import ReadOptions
from ffq_spark.store import Store


@pytest.fixture
def store(root: str) -> Store:
    """Write steps 1 and 2, step 3 that replaces them, and step 4."""
    for first, mode in ((0, "append"), (100, "append"), (200, "replace"), (300, "append")):
        batch = pa.record_batch({"k": list(range(first, first + 100))})
        write_batches(root, [batch], options=write_options(keys=("k",), partitions=4), mode=mode)
    return Store(root)


def steps(store: Store, newest: int | None = None, **options: object) -> list[int]:
    snapshot = take_snapshot(store, ReadOptions(**options), newest)  # type: ignore[arg-type]
    return [step.step for step in snapshot.steps]


def test_each_choice_of_steps_is_what_it_says(store: Store) -> None:
    assert steps(store) == [3, 4]
    assert steps(store, steps="all") == [1, 2, 3, 4]
    assert steps(store, steps="Latest") == [4]
    assert steps(store, steps="2..3") == [2, 3]
    assert steps(store, as_of_step=2) == [1, 2]


def test_an_exchange_that_was_opened_before_shows_what_it_showed_then(store: Store) -> None:
    assert steps(store, newest=2) == [1, 2]
    assert steps(store, newest=2, steps="all") == [1, 2]
    assert steps(store, newest=2, steps="latest") == [2]
    opened = open_exchange(store, ReadOptions())
    assert (opened.newest, opened.exchange.keys) == (4, ("k",))
    for options in (ReadOptions(as_of_step=2), ReadOptions(steps="1")):
        assert open_exchange(store, options).newest is None


@pytest.mark.parametrize("text", ["first", "2..1", "-1", "1..", "1,2", f"1..{10**30}"])
def test_steps_that_are_no_choice_are_refused(store: Store, text: str) -> None:
    with pytest.raises(BadOption) as caught:
        take_snapshot(store, ReadOptions(steps=text))
    assert caught.value.option == "steps"


def test_a_range_must_end_in_the_log(store: Store) -> None:
    for text in ("2..5", "5..6", "5"):
        with pytest.raises(StepNotFound, match=f"there is no step {text[-1]}"):
            take_snapshot(store, ReadOptions(steps=text))


def test_options_that_contradict_each_other_are_refused(store: Store) -> None:
    for options in (ReadOptions(steps="1", as_of_step=1), ReadOptions(attempt="1")):
        for look in (open_exchange, take_snapshot):
            with pytest.raises(BadOption):
                look(store, options)


def test_parts_come_by_partition_then_step(store: Store) -> None:
    table = take_snapshot(store, ReadOptions(steps="all")).parts()
    assert table.schema == READ_SCHEMA
    places = list(zip(table["reduce"].to_pylist(), table["step"].to_pylist(), strict=True))
    assert places == [(reduce, step) for reduce in range(4) for step in range(1, 5)]


def test_parts_that_cannot_match_are_left_out(store: Store) -> None:
    snapshot = take_snapshot(store, ReadOptions())
    assert snapshot.num_parts == snapshot.parts().num_rows == 8
    above = snapshot.parts([Predicate("k", ">=", (300,))])
    assert set(above["step"].to_pylist()) == {4} and above.schema == READ_SCHEMA
    key = snapshot.parts([Predicate("k", "in", (250,))])
    assert key["step"].to_pylist() == [3]
    (partition,) = key["reduce"].to_pylist()
    others = frozenset(range(4)) - {partition}
    assert snapshot.parts([Predicate("k", "in", (250,))], others).num_rows == 0
    assert set(snapshot.parts(partitions=others)["reduce"].to_pylist()) == others
    with_statistics = pa.concat_tables(snapshot.part_tables(others))
    assert (
        set(with_statistics["reduce"].to_pylist()) == others
        and "stats" in with_statistics.schema.names
    )


def test_a_partition_that_does_not_exist_is_refused(store: Store) -> None:
    with pytest.raises(PartitionNotFound, match="4"):
        take_snapshot(store, ReadOptions()).parts(partitions=frozenset({4}))


def test_a_root_without_data_is_no_exchange(root: str) -> None:
    for look in (open_exchange, take_snapshot):
        with pytest.raises(ExchangeNotFound):
            look(Store(root), ReadOptions())


def test_one_query_is_read_from_its_indexes(store: Store) -> None:
    query = take_snapshot(store, ReadOptions(steps="1")).steps[0].body.query
    snapshot = take_snapshot(store, ReadOptions(query=query))
    assert not snapshot.steps and snapshot.raw is not None
    table = snapshot.parts(partitions=frozenset({1, 2}))
    assert table["reduce"].to_pylist() == [1, 2] and snapshot.num_parts == 4
    assert set(table["query"].to_pylist()) == {query} and table["step"].null_count == 2
