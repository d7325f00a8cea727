"""A key from Python becomes predicates and selects the rows that Spark treats as equal to it."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from ffq_spark.errors import BadOption, UnsupportedType
from ffq_spark.exchange.compute.keys import key_predicates, matching_rows
from ffq_spark.exchange.compute.pruning import Predicate
from ffq_spark.format.records import ExchangeRecord

SCHEMA = pa.schema([("a", pa.int32()), ("b", pa.string()), ("l", pa.list_(pa.int64()))])
EXCHANGE = ExchangeRecord.of(SCHEMA, ["a", "b"], 8)


@pytest.mark.parametrize("key", [(5, "x"), {"b": "x", "a": 5}, ("5", b"x")])
def test_a_key_is_a_tuple_or_a_dict_by_column(key: Any) -> None:
    expected = [Predicate("a", "in", (5,)), Predicate("b", "in", ("x",))]
    assert key_predicates(EXCHANGE, key) == expected


@pytest.mark.parametrize("key", [5, (5,), (5, "x", 1), {"a": 5}, {"a": 5, "c": "x"}, ("five", "x")])
def test_a_key_that_does_not_fit_is_refused(key: Any) -> None:
    with pytest.raises(BadOption) as caught:
        key_predicates(EXCHANGE, key)
    assert caught.value.option == "keys"


def test_exchanges_without_keys_or_with_nested_ones_have_no_look_up() -> None:
    with pytest.raises(BadOption, match="no keys"):
        key_predicates(ExchangeRecord.of(SCHEMA, [], 1), 5)
    with pytest.raises(UnsupportedType):
        key_predicates(ExchangeRecord.of(SCHEMA, ["l"], 1), ([1],))


@pytest.mark.parametrize(
    ("value", "expected"), [(1.0, [0, 4]), (None, [1]), (math.nan, [2]), (0.0, [3])]
)
def test_null_equals_null_and_nan_equals_nan(value: float | None, expected: list[int]) -> None:
    column = pa.array([1.0, None, math.nan, -0.0, 1.0])
    batch = pa.record_batch({"k": column, "row": list(range(5))})
    matching = matching_rows(batch, [Predicate("k", "in", (value,))])
    assert matching["row"].to_pylist() == expected


def test_all_columns_of_the_key_must_match() -> None:
    batch = pa.record_batch({"a": [1, 1, None], "b": ["x", "y", "x"]})
    predicates = [Predicate("a", "in", (1,)), Predicate("b", "in", ("x",))]
    assert matching_rows(batch, predicates).num_rows == 1
