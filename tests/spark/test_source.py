"""The data source on the driver: an accepted write begins and takes its lease, a refused does not.

These tests call the source as Spark's planner does, without a Spark session.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from layouts import write_options
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ffq_spark.errors import BadOption, FfqError, QueryExists, StoreUnsafe, UnknownOption
from ffq_spark.exchange.ledger import leases
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.write.attempt_writer import write_attempt
from ffq_spark.exchange.write.commit import commit_write
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.exchange.write.prepare import prepare
from ffq_spark.format import paths
from ffq_spark.format.paths import spark_attempt
from ffq_spark.spark.source import FfqShuffleSource
from ffq_spark.store import Store
from ffq_spark.store.local import LocalBackend

APP = "app-1"
SCHEMA = StructType([StructField("k", LongType())])
KINDS = pytest.mark.parametrize("kind", ["writer", "streamWriter"])


def plan_write(kind: str, root: str, **options: str) -> Any:
    """Plan a write with the options that the plugin adds."""
    given = {"path": root, "keys": "k", "partitions": "2", "query": "7", "initiator": APP}
    source = FfqShuffleSource({**given, "leaseSeconds": "30", **options})
    return getattr(source, kind)(SCHEMA, False)


@KINDS
@pytest.mark.parametrize("by_spark", [True, False], ids=["spark", "pyarrow"])
def test_a_key_that_a_later_write_collates_is_refused(kind: str, root: str, by_spark: bool) -> None:
    """A later write takes the keys from the exchange. Equal strings would differ in partition."""
    plain = StructType([StructField("k", StringType())])
    record = plain.json() if by_spark else None
    options = write_options(keys=("k",), partitions=2)
    rows = pa.record_batch({"k": ["a"]})
    exchange = prepare(Store(root), options, rows.schema, record)
    ledger = Ledger(Store(root))
    query = ledger.begin("append", APP)
    job = WriteJob.of(exchange, query, options)
    output = write_attempt(Store(root), job, 0, spark_attempt(0), iter([rows]))
    commit_write(Store(root), job, [output], None)
    collated = StructType([StructField("k", StringType("UTF8_LCASE"))])
    source = FfqShuffleSource({"path": root})
    with pytest.raises(FfqError, match="UTF8_LCASE"):
        getattr(source, kind)(collated, False)
    getattr(source, kind)(plain, False)


def lease_on(root: str) -> bool:
    return leases.is_taken(Store(root), APP)


@KINDS
def test_an_accepted_write_takes_the_lease_that_the_steward_keeps(kind: str, root: str) -> None:
    plan_write(kind, root)
    lease = leases.read(Store(root), APP)
    assert lease is not None and lease.seconds == 30
    assert Ledger(Store(root)).format() is not None


@KINDS
def test_a_write_without_the_plugin_has_no_lease(kind: str, root: str) -> None:
    plan_write(kind, root, leaseSeconds="0")
    assert Store(root).list(paths.LEASES) == []


@KINDS
@pytest.mark.parametrize(
    ("options", "error"),
    [({"hash": "md5"}, BadOption), ({"keys": "x"}, FfqError), ({"partition": "2"}, UnknownOption)],
)
def test_a_refused_write_leaves_nothing(
    kind: str, root: str, options: dict[str, str], error: type[FfqError]
) -> None:
    with pytest.raises(error):
        plan_write(kind, root, **options)
    assert not Path(root).exists()


@KINDS
def test_a_store_that_cannot_create_once_gets_no_lease(
    kind: str, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalBackend, "create_once", "")
    with pytest.raises(StoreUnsafe):
        plan_write(kind, root)
    assert Store(root).walk("") == []


def test_a_number_that_is_taken_gets_no_lease(root: str) -> None:
    plan_write("writer", root, leaseSeconds="0")
    with pytest.raises(QueryExists):
        plan_write("writer", root)
    assert not lease_on(root)
