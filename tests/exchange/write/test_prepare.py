"""All checks of a write that need no rows come before anything is written."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pytest
from layouts import write_options

from ffq_spark.errors import BadOption, ExchangeMismatch, FfqError
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.exchange.write.prepare import batch_delivery, check_delivery, prepare
from ffq_spark.exchange.write.stream_write import BATCH_WRITES
from ffq_spark.store import Store

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.list_(pa.string()))])


@pytest.fixture
def store() -> Store:
    return Store(f"memory://{uuid.uuid4().hex}")


@pytest.mark.parametrize(
    ("given", "subject"),
    [
        ({"sort_by": ("missing",)}, "missing"),
        ({"sort_by": ("v",)}, "v"),
        ({"statistics": ("missing",)}, "missing"),
        ({"statistics": ("v",)}, "v"),
        ({"weight_column": "v"}, "v"),
        ({"partitions": None}, "partitions"),
    ],
)
def test_options_that_do_not_fit_the_columns_are_refused(
    store: Store, given: dict[str, Any], subject: str
) -> None:
    options = write_options(**{"keys": ("k",), "partitions": 2, **given})
    with pytest.raises(FfqError, match=subject):
        prepare(store, options, SCHEMA)
    assert list(store.walk("")) == []


def test_columns_with_one_name_are_refused(store: Store) -> None:
    schema = pa.schema([("k", pa.int64()), ("k", pa.string())])
    with pytest.raises(BadOption, match="k, k"):
        prepare(store, write_options(), schema)


def test_preparing_a_write_writes_nothing(store: Store) -> None:
    exchange = prepare(store, write_options(keys=("k",), partitions=2), SCHEMA)
    assert (exchange.keys, exchange.partitions, exchange.hash) == (("k",), 2, "spark")
    assert list(store.walk("")) == []


def test_a_later_write_means_the_exchange_that_exists(store: Store) -> None:
    options = write_options(keys=("k",), partitions=2)
    batch = pa.record_batch([[1], [["a"]]], schema=SCHEMA)
    write_batches(store.root, [batch], options=options)
    assert prepare(store, write_options(), SCHEMA).partitions == 2
    with pytest.raises(ExchangeMismatch):
        prepare(store, write_options(partitions=3, keys=("k",)), SCHEMA)


def test_a_dictionary_stands_for_its_values(store: Store) -> None:
    schema = pa.schema([("k", pa.dictionary(pa.int8(), pa.string()))])
    exchange = prepare(store, write_options(keys=("k",), partitions=2), schema)
    assert exchange.schema.field("k").type == pa.string()


@pytest.mark.parametrize(
    "given", [{"batch": 1}, {"stream_run": "a"}, {"takeover": True}, {"stream_id": "s"}]
)
def test_a_batch_write_names_both_its_stream_and_its_batch(given: dict[str, Any]) -> None:
    with pytest.raises(BadOption):
        check_delivery(write_options(**given))


@pytest.mark.parametrize(
    ("run", "streaming_query", "owner"),
    [("", "", BATCH_WRITES), ("", "id", "id"), ("run", "id", "run"), ("run", "", "run")],
)
def test_a_batchs_owner_is_named_or_is_its_streaming_query(
    run: str, streaming_query: str, owner: str
) -> None:
    options = write_options(stream_id="s", batch=3, stream_run=run)
    delivery = batch_delivery(options, streaming_query)
    assert delivery is not None
    assert (delivery.stream, delivery.owner, delivery.batch) == ("s", owner, 3)
    assert delivery.on_mismatch == "fail"
    assert batch_delivery(write_options(), streaming_query) is None


def test_nobody_takes_a_stream_over_without_a_name() -> None:
    options = write_options(stream_id="s", batch=3, takeover=True)
    with pytest.raises(BadOption, match="streamRun"):
        batch_delivery(options)
    delivery = batch_delivery(options, "id")
    assert delivery is not None and delivery.takeover
