"""If storage fails after the outcome, Spark's job succeeds and its rows count once."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from conftest import Place
from s3proxy import Fault, Request
from spark_rows import SOURCE, write

import ffq_spark as ffq

pytestmark = pytest.mark.spark


def refused(method: str, part: str) -> Fault:
    def when(request: Request) -> bool:
        return request.method == method and part in request.path

    return Fault("403", when)


AFTER_THE_OUTCOME = {
    "the marker cannot be deleted": refused("DELETE", "/_ffq/pending/"),
    "the step cannot be created": refused("PUT", "/_ffq/steps/"),
}


def options(place: Place) -> dict[str, str]:
    return {f"storage.{name}": str(value) for name, value in place.storage_options.items()}


@pytest.mark.parametrize("fault", AFTER_THE_OUTCOME.values(), ids=AFTER_THE_OUTCOME.keys())
def test_a_batch_write_succeeds_once_it_is_committed(
    spark: Any, proxy: Any, proxied: Place, fault: Fault
) -> None:
    frame = spark.range(0, 20, 1, 2).selectExpr("id % 3 AS k", "id AS v")
    exchange = ffq.Exchange(proxied.root, proxied.storage_options)
    write(frame, proxied.root, keys="k", partitions=2, **options(proxied))
    with proxy.faults(fault):
        write(frame, proxied.root, **options(proxied))
    assert proxy.struck()["403"]
    assert exchange.read().read_all().num_rows == 40
    write(frame, proxied.root, **options(proxied))
    assert exchange.read().read_all().num_rows == 60


def test_a_micro_batch_succeeds_once_it_is_committed(
    spark: Any, proxy: Any, proxied: Place, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    exchange = ffq.Exchange(proxied.root, proxied.storage_options)

    def run(*numbers: int) -> None:
        rows = "".join(json.dumps({"k": number}) + "\n" for number in numbers)
        (source / f"{uuid.uuid4().hex}.json").write_text(rows)
        stream = spark.readStream.schema("k long").json(str(source)).writeStream.format(SOURCE)
        given = {"keys": "k", "partitions": 2, "checkpointLocation": str(tmp_path / "checkpoint")}
        stream = stream.options(**given, **options(proxied)).trigger(availableNow=True)
        stream.start(proxied.root).awaitTermination()

    run(1, 2)
    with proxy.faults(AFTER_THE_OUTCOME["the step cannot be created"]):
        run(3, 4)
    assert proxy.struck()["403"]
    run(5, 6)
    assert sorted(exchange.read().read_all()["k"].to_pylist()) == [1, 2, 3, 4, 5, 6]


def dying_source() -> type:
    """Return a source whose commits kill their process after they have succeeded."""
    import os

    from pyspark.sql.datasource import DataSourceArrowWriter

    from ffq_spark.spark.source import FfqShuffleSource

    class DyingWriter(DataSourceArrowWriter):
        def __init__(self, writer: Any) -> None:
            self._writer = writer

        def write(self, iterator: Any) -> Any:
            return self._writer.write(iterator)

        def commit(self, messages: list[Any]) -> None:
            self._writer.commit(messages)
            os._exit(1)

        def abort(self, messages: list[Any]) -> None:
            self._writer.abort(messages)

    class DyingSource(FfqShuffleSource):
        def writer(self, schema: Any, overwrite: bool) -> Any:
            return DyingWriter(super().writer(schema, overwrite))

    return DyingSource


def test_a_commit_that_dies_after_the_outcome_is_told_beside_sparks_error(
    spark: Any, root: str
) -> None:
    session = spark.newSession()
    session.dataSource.register(dying_source())
    with pytest.raises(Exception) as failed:
        write(session.range(20).withColumnRenamed("id", "k"), root, keys="k", partitions=2)
    assert "FFQ_ALREADY_COMMITTED" in str(failed.value)
    assert ffq.Exchange(root).read().read_all().num_rows == 20
