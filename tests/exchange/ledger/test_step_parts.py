"""Parts of steps: only the committed manifest counts, and steps may have different statistics."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest
from layouts import write_options

from ffq_spark.errors import CorruptRecord
from ffq_spark.exchange.ledger.step_parts import (
    PARTS_SCHEMA,
    committed_parts,
    join_parts,
    step_parts,
)
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.format.records import StepRecord
from ffq_spark.store import Store


@pytest.fixture
def store() -> Store:
    return Store(f"memory://{uuid.uuid4().hex}")


def write(store: Store, first: int, statistics: str) -> StepRecord:
    batch = pa.record_batch({"k": [first, first + 1], "v": ["a", "b"]})
    options = write_options(keys=("k",), partitions=2, statistics=(statistics,))
    step = write_batches(store.root, [batch], options=options, store=store)
    assert step is not None
    return step


def parts_of(store: Store, step: StepRecord, *, statistics: bool = True) -> pa.Table:
    data = store.read(step.body.manifest)
    return step_parts(step, data, step.body.manifest, statistics=statistics)


def test_a_part_names_its_step_and_query(store: Store) -> None:
    write(store, 0, "none")
    step = write(store, 10, "k")
    table = parts_of(store, step, statistics=False)
    assert table.schema == PARTS_SCHEMA
    assert set(zip(*table.select(["step", "query"]).to_pydict().values(), strict=True)) == {
        (2, step.body.query)
    }
    assert sum(table["rows"].to_pylist()) == 2
    assert parts_of(store, step).schema.names == [*PARTS_SCHEMA.names, "stats"]


def test_a_manifest_that_is_not_the_committed_one_is_refused(store: Store) -> None:
    """Another step's manifest is valid, too, and may have the same size."""
    first, second = (write(store, 10 * number, "none") for number in range(2))
    good, other = (store.read(step.body.manifest) for step in (first, second))
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 1
    for data in (other, good + b"x", good[:-1], bytes(flipped), b""):
        with pytest.raises(CorruptRecord, match="differs from the committed one") as caught:
            committed_parts(first.body, data, "the/file")
        assert caught.value.path == "the/file"
    with pytest.raises(CorruptRecord, match="the manifest is missing"):
        committed_parts(first.body, None, "the/file")


def test_joined_steps_have_the_statistics_of_each_and_nulls_elsewhere(store: Store) -> None:
    steps = [write(store, 10 * n, name) for n, name in enumerate(("v", "none", "k"))]
    joined = join_parts([parts_of(store, step) for step in steps])
    assert [field.name for field in joined.schema.field("stats").type] == ["k", "v"]
    for row in joined.to_pylist():
        has = {name for name, bounds in row["stats"].items() if bounds is not None}
        assert has == ({"v"}, set(), {"k"})[row["step"] - 1]
    plain = join_parts([parts_of(store, step, statistics=False) for step in steps])
    assert plain.schema == PARTS_SCHEMA and plain == joined.select(PARTS_SCHEMA.names)


def test_joined_steps_keep_the_statistics_of_columns_with_odd_names() -> None:
    """Arrow reads a name that begins with a dot as the path of a nested field."""
    plain = {name: "f" if name == "file" else 0 for name in PARTS_SCHEMA.names}
    row = pa.Table.from_pylist([plain], schema=PARTS_SCHEMA)
    names = ("a", ".a", ".")
    stats = [{n: {"min": place, "max": 9, "nulls": 0}} for place, n in enumerate(names)]
    joined = join_parts([row.append_column("stats", pa.array([one])) for one in stats])
    found = [{n: b for n, b in one.items() if b} for one in joined["stats"].to_pylist()]
    assert found == stats


def test_no_steps_have_no_parts() -> None:
    assert join_parts([]) == PARTS_SCHEMA.empty_table()
