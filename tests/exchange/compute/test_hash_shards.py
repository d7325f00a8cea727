"""Shards divide the rows of every partition by bits of the hash that did not place them."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from arrow_strategies import FFQ_KEYS, LEAVES, arrays
from hypothesis import given, settings
from hypothesis import strategies as st

from ffq_spark.errors import BadOption
from ffq_spark.exchange.compute.hash_shards import (
    MAX_SHARDS,
    HashShard,
    check_divisible,
    row_shards,
)
from ffq_spark.exchange.compute.row_partitions import row_partitions
from ffq_spark.format.hashing import partition_ids
from ffq_spark.format.records import ExchangeRecord
from ffq_spark.options import MAX_PARTITIONS

LONGS = pa.schema([("k", pa.int64())])


@pytest.mark.parametrize("hash", ["spark", "ffq"])
@pytest.mark.parametrize(("partitions", "shards"), [(64, 4), (64, 3), (10, 4), (1, 7)])
def test_the_shards_of_a_partition_have_about_the_same_number_of_keys(
    partitions: int, shards: int, hash: str
) -> None:
    """The hash modulo the number of shards would leave 3 of 4 shards of 64 partitions empty."""
    rows = pa.record_batch({"k": pa.array(range(200 * partitions * shards), pa.int64())})
    exchange = ExchangeRecord.of(LONGS, ["k"], partitions, hash)
    own = row_partitions(exchange, rows) == partitions - 1
    counts = np.bincount(row_shards(exchange, rows, shards)[own], minlength=shards)
    assert counts.min() > 130 and counts.max() < 270
    if (partitions, shards) == (64, 4):
        ffqs = partition_ids([rows["k"].filter(pa.array(own))], shards, hash)
        assert len(set(ffqs.tolist())) == 1


@st.composite
def keyed(draw: st.DrawFn) -> tuple[ExchangeRecord, pa.RecordBatch]:
    hash = draw(st.sampled_from(["spark", "ffq"]))
    kind = draw(st.sampled_from(FFQ_KEYS if hash == "ffq" else LEAVES))
    column = draw(arrays(kind, max_size=30))
    rows = pa.record_batch({"k": column, "n": pa.array(range(len(column)), pa.int64())})
    partitions = draw(st.integers(1, 200) | st.just(MAX_PARTITIONS))
    return ExchangeRecord.of(rows.schema, ["k"], partitions, hash), rows


@settings(max_examples=300)
@given(keyed(), st.integers(1, 40) | st.just(MAX_SHARDS))
def test_a_row_is_in_one_shard_of_its_own_partition(
    given: tuple[ExchangeRecord, pa.RecordBatch], shards: int
) -> None:
    exchange, rows = given
    numbers = row_shards(exchange, rows, shards)
    assert np.all((numbers >= 0) & (numbers < shards))
    places = row_partitions(exchange, rows, shards)
    assert np.array_equal(places, row_partitions(exchange, rows) + exchange.partitions * numbers)
    if shards <= 40:
        divided = [
            HashShard(n, shards).rows(exchange, rows)["n"].to_pylist() for n in range(shards)
        ]
        assert sorted(n for own in divided for n in own) == rows["n"].to_pylist()


@pytest.mark.parametrize("hash", ["spark", "ffq"])
def test_equal_floats_of_a_z_set_are_in_the_same_shard(hash: str) -> None:
    schema = pa.schema([("k", pa.float64()), ("w", pa.int64())])
    other_nan = np.array([0x7FF8000000000001], np.uint64).view(np.float64)[0]
    rows = pa.record_batch(
        {"k": np.array([0.0, -0.0, math.nan, other_nan]), "w": [1, -1, 1, -1]}, schema
    )
    exchange = ExchangeRecord.of(schema, ["k"], 4, hash, weight="w")
    zero, minus, nan, other = row_shards(exchange, rows, 1000).tolist()
    assert zero == minus and nan == other


def test_empty_batches_are_left_out() -> None:
    exchange = ExchangeRecord.of(LONGS, ["k"], 4)
    batches = [pa.record_batch({"k": pa.array([k], pa.int64())}) for k in range(20)]
    own = [list(HashShard(n, 2).select(exchange, batches)) for n in range(2)]
    assert all(batch.num_rows == 1 for batches in own for batch in batches)
    assert len(own[0]) + len(own[1]) == 20 and own[0] and own[1]


@pytest.mark.parametrize("shard", [(2, 2), (-1, 2), (0, 0), (0, MAX_SHARDS + 1)])
def test_a_shard_that_cannot_be_is_refused(shard: tuple[int, int]) -> None:
    with pytest.raises(BadOption, match="must be a number from 0"):
        HashShard(*shard)


def test_rows_without_keys_are_not_divided() -> None:
    with pytest.raises(BadOption, match=r"no keys .* split=map or split=never"):
        check_divisible(ExchangeRecord.of(LONGS, [], 4))


def test_places_have_at_most_31_bits() -> None:
    assert MAX_SHARDS * MAX_PARTITIONS < 1 << 31
