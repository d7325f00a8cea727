"""Rows have the columns and types that the read requests, for any columns of the parts."""

from __future__ import annotations

import pyarrow as pa

from ffq_spark.exchange.read.part import Part
from ffq_spark.exchange.read.row_shape import METADATA_FIELDS, RowShape

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
PART = Part("f", 0, 1, reduce=4, step=1, query=2, map_task=3, attempt=5)
BATCH = pa.record_batch({"k": [1, 2], "v": ["a", "b"]}, SCHEMA)


def shaped(output: pa.Schema, schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    (batch,) = RowShape(schema, output, local=True).rows(PART, [BATCH])
    return batch


def test_columns_come_in_the_order_and_types_of_the_output() -> None:
    output = pa.schema([("v", pa.large_string()), ("k", pa.int32())])
    assert shaped(output).schema == output
    assert shaped(output).to_pylist() == [{"v": "a", "k": 1}, {"v": "b", "k": 2}]
    assert shaped(SCHEMA) is BATCH


def test_rows_without_columns_still_count() -> None:
    batch = shaped(pa.schema([]))
    assert (batch.num_rows, batch.num_columns) == (2, 0)


def test_metadata_columns_stand_where_the_output_has_them() -> None:
    output = pa.schema([METADATA_FIELDS[4], SCHEMA.field("v"), *METADATA_FIELDS[:4]])
    expected = {"_ffq_partition": 4, "v": "b", "_ffq_step": 1, "_ffq_query": 2}
    assert shaped(output).schema == output
    assert shaped(output).to_pylist()[1] == {**expected, "_ffq_map_task": 3, "_ffq_attempt": 5}
    alone = shaped(pa.schema([METADATA_FIELDS[0]]))
    assert alone.to_pylist() == [{"_ffq_step": 1}, {"_ffq_step": 1}]


def test_an_exchange_may_have_a_column_of_that_name() -> None:
    own = pa.schema([("_ffq_step", pa.string())])
    batch = pa.record_batch({"_ffq_step": ["mine"]}, own)
    (rows,) = RowShape(own, own, local=True).rows(PART, [batch])
    assert rows.to_pylist() == [{"_ffq_step": "mine"}]
