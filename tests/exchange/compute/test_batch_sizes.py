"""Splitting and joining batches keeps every row, and keeps batches within their limit."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ffq_spark.exchange.compute.batch_sizes import (
    batch_cost,
    join_small,
    resize,
    split_evenly,
    split_within,
)


@given(st.integers(0, 300), st.integers(1, 10_000))
def test_even_pieces_are_the_batch_and_none_is_much_above_the_limit(count: int, limit: int) -> None:
    batch = pa.record_batch({"k": pa.array(range(count), pa.int64())})
    pieces = list(split_evenly(batch, limit))
    assert pa.Table.from_batches(pieces).combine_chunks() == pa.Table.from_batches([batch])
    assert all(piece.num_rows for piece in pieces) or count == 0
    row = batch_cost(batch) // max(count, 1)
    assert all(batch_cost(piece) <= limit + row for piece in pieces)


def test_pieces_are_within_the_limit_where_rows_differ_in_size() -> None:
    batch = pa.record_batch({"text": ["x" * (20_000 if i > 90 else 1) for i in range(100)]})
    pieces = list(split_within(batch, 30_000))
    assert pa.Table.from_batches(pieces).equals(pa.Table.from_batches([batch]))
    assert all(piece.nbytes <= 30_000 for piece in pieces) and len(pieces) < 20
    assert [piece.num_rows for piece in split_within(batch.slice(90, 4), 10)] == [1, 1, 1, 1]
    assert list(split_within(batch.slice(0, 0), 10)) == []


@given(st.lists(st.integers(1, 50), max_size=20), st.integers(1, 1000))
def test_joined_batches_are_the_same_rows_up_to_the_limit(sizes: list[int], limit: int) -> None:
    starts = np.cumsum([0, *sizes])
    batches = [
        pa.record_batch({"k": pa.array(range(start, start + size), pa.int64())})
        for start, size in zip(starts.tolist(), sizes, strict=False)
    ]
    joined = list(join_small(iter(batches), limit))
    assert [k for batch in joined for k in batch["k"].to_pylist()] == list(range(sum(sizes)))
    largest = max((batch.nbytes for batch in batches), default=0)
    assert all(batch.nbytes <= max(limit, largest) for batch in joined)
    assert all(one.nbytes + two.nbytes > limit for one, two in pairwise(joined))


def test_resized_batches_are_within_the_limit_where_rows_differ_in_size() -> None:
    batch = pa.record_batch({"text": ["x" * (9_000 if n > 190 else 1) for n in range(200)]})
    messages = list(resize([batch], 10_000))
    assert pa.Table.from_batches(messages).equals(pa.Table.from_batches([batch]))
    assert max(message.nbytes for message in messages) <= 10_000
