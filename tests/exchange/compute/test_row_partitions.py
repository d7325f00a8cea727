"""Rows are placed by their keys, and a misplaced row is detected."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ffq_spark.errors import CorruptPart
from ffq_spark.exchange.compute.row_partitions import check_placed, row_partitions
from ffq_spark.format.records import ExchangeRecord

SCHEMA = pa.schema([("k", pa.int64())])
BATCH = pa.record_batch({"k": list(range(100))}, SCHEMA)


def test_rows_in_their_partition_are_no_error_and_others_are_counted() -> None:
    exchange = ExchangeRecord.of(SCHEMA, ["k"], 4)
    partitions = row_partitions(exchange, BATCH)
    for reduce in range(4):
        own = BATCH.filter(pa.array(partitions == reduce))
        check_placed(exchange, own, reduce, "part")
        wrong = 100 - own.num_rows
        with pytest.raises(
            CorruptPart, match=f"{wrong} rows belong to another .* {reduce} by hash"
        ):
            check_placed(exchange, BATCH, reduce, "part")


def test_an_exchange_without_keys_places_rows_anywhere() -> None:
    check_placed(ExchangeRecord.of(SCHEMA, [], 4), BATCH, 3, "part")


def test_a_single_partition_holds_every_row() -> None:
    exchange = ExchangeRecord.of(SCHEMA, ["k"], 1)
    check_placed(exchange, BATCH, 0, "part")
    with pytest.raises(CorruptPart):
        check_placed(exchange, BATCH, 1, "part")
