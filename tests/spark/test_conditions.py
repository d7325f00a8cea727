"""Decoding of the plugin's conditions to predicates, without a Spark session."""

from __future__ import annotations

from base64 import b64encode
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ffq_spark.exchange.compute.pruning import Predicate
from ffq_spark.format.records import ExchangeRecord
from ffq_spark.spark.conditions import decode_conditions


def decode(dtype: pa.DataType, op: str, *values: Any) -> list[Predicate]:
    exchange = ExchangeRecord.of(pa.schema([("c", dtype)]), ["c"], 8)
    return decode_conditions([{"column": "c", "op": op, "values": values}], exchange)


def base64(value: bytes) -> str:
    return b64encode(value).decode()


@pytest.mark.parametrize(
    ("dtype", "sent", "value"),
    [
        (pa.int64(), 5, 5),
        (pa.float64(), "Infinity", float("inf")),
        (pa.string(), base64("ä".encode()), "ä"),
        (pa.binary(), base64(b"\xff\x00"), b"\xff\x00"),
        (pa.decimal128(9, 2), "12.30", Decimal("12.30")),
        (pa.bool_(), True, True),
        # 1582-10-10, a day that java.sql.Date does not have.
        (pa.date32(), -141432, -141432),
        (pa.timestamp("us", "UTC"), -12219292800000001, -12219292800000001),
        (pa.int64(), None, None),
    ],
)
def test_a_value_is_decoded_by_the_type_of_its_column(
    dtype: pa.DataType, sent: Any, value: Any
) -> None:
    assert decode(dtype, ">=", sent) == [Predicate("c", ">=", (value,))]


def test_a_value_is_converted_to_the_stored_unit() -> None:
    """Spark sends microseconds for timestamps of any unit."""
    (predicate,) = decode(pa.timestamp("ms", "UTC"), "<", 1_500_000)
    assert predicate.values == (1_500,)


def test_a_value_that_the_stored_type_lacks_prunes_nothing() -> None:
    assert decode(pa.timestamp("ms", "UTC"), "<", 1_500_001) == []


def test_a_string_that_is_not_utf8_prunes_nothing() -> None:
    assert decode(pa.string(), "in", base64(b"\xff")) == []


def test_a_condition_on_a_column_outside_the_exchange_prunes_nothing() -> None:
    exchange = ExchangeRecord.of(pa.schema([("c", pa.int64())]), ["c"], 8)
    condition = {"column": "_ffq_step", "op": "in", "values": [1]}
    assert decode_conditions([condition], exchange) == []


def test_all_conditions_are_kept_in_order() -> None:
    exchange = ExchangeRecord.of(pa.schema([("c", pa.int64()), ("d", pa.int64())]), ["c"], 8)
    conditions = [
        {"column": "d", "op": ">", "values": [1]},
        {"column": "c", "op": "in", "values": [1, None, 2]},
    ]
    assert decode_conditions(conditions, exchange) == [
        Predicate("d", ">", (1,)),
        Predicate("c", "in", (1, None, 2)),
    ]
