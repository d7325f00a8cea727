"""The settings of a write: what the tasks need from the options, and nothing else."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.format.records import ExchangeRecord, QueryRecord
from ffq_spark.options import WriteOptions

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.list_(pa.string())), ("t", pa.string())])
EXCHANGE = ExchangeRecord.of(SCHEMA, ("k",), 4)
QUERY = QueryRecord(7, "app-1", 0, "append", 1, 0)


def job(**options: object) -> WriteJob:
    return WriteJob.of(EXCHANGE, QUERY, WriteOptions(**options))


def test_every_option_of_a_task_reaches_the_tasks() -> None:
    chosen = {
        "layout": "packed",
        "payload": "ffqs",
        "compression": "zstd",
        "sort_by": ("t",),
        "max_buffer_bytes": 12345,
    }
    made = job(**chosen)
    assert {name: getattr(made, name) for name in chosen} == chosen
    assert (made.exchange, made.query) == (EXCHANGE, QUERY)
    assert pickle.loads(pickle.dumps(made)) == made


@pytest.mark.parametrize("stream", ["", "s"])
def test_rows_are_digested_for_a_stream_alone(stream: str) -> None:
    """Digests compare a re-run of a stream's batch with its first run."""
    assert job(stream_id=stream).digests is bool(stream)


def test_statistics_are_chosen_once_from_the_exchanges_columns() -> None:
    assert job(statistics=("t", "k")).stats_fields == [SCHEMA.field("t"), SCHEMA.field("k")]
    everything = job(statistics=("all",))
    assert everything.statistics == ("k", "t"), "a list has no minimum"
