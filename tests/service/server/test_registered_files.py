"""Files that a producer wrote itself are registered after the server has verified them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from layouts import write_options
from service_scene import PARTITIONS, SCHEMA, begin, rows, sorted_rows, write

import ffq_spark as ffq
from ffq_spark.errors import (
    BadCommit,
    CorruptPart,
    NoAttempts,
)
from ffq_spark.exchange.write import map_outputs
from ffq_spark.exchange.write.attempt_writer import write_attempt
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.format import manifest
from ffq_spark.format.paths import AttemptId
from ffq_spark.format.records import ExchangeRecord, QueryRecord
from ffq_spark.service.client.connection import Connection
from ffq_spark.store import Store


def written(
    root: str, query: int, partitions: int = PARTITIONS, attempt: int = 1, **options: Any
) -> AttemptId:
    """Write an attempt to storage directly, like a producer without the service."""
    given = {"keys": ("id",), "partitions": partitions, **options}
    exchange = ExchangeRecord.of(SCHEMA, ("id",), partitions)
    record = QueryRecord(query, "me", 0, "append", 0)
    job = WriteJob.of(exchange, record, write_options(**given))
    return write_attempt(Store(root), job, 0, attempt, [rows(0, 100)]).id


@pytest.mark.parametrize("payload", ["arrow", "ffqs"])
@pytest.mark.parametrize("layout", ["parts", "packed"])
def test_files_are_registered_after_a_look_at_all_of_them(
    service: Connection, root: str, payload: str, layout: str
) -> None:
    step = begin(service)
    written(root, step.query, payload=payload, layout=layout)
    assert step.register(0, 1)["rows"] == step.register(0, 1)["rows"] == 100
    step.commit(1)
    exchange = ffq.Exchange(root)
    assert exchange.verify().ok and exchange.lookup(7).num_rows == 1
    expected = sorted_rows(pa.Table.from_batches([rows(0, 100)]))
    assert sorted_rows(exchange.read().read_all()) == expected
    assert all(c is not None for c in exchange.parts()["checksum"].to_pylist())


def test_files_that_are_not_there_or_not_whole_are_refused(service: Connection, root: str) -> None:
    step = begin(service)
    with pytest.raises(NoAttempts):
        step.register(0, 1)
    id = written(root, step.query)
    part = next(Path(root, id.directory).glob("*.ipc"))
    data = part.read_bytes()
    part.write_bytes(data[:-20])
    with pytest.raises(CorruptPart):
        step.register(0, 1)
    part.write_bytes(data)
    step.register(0, 1)


@pytest.mark.part_files
def test_files_with_what_is_no_text_are_refused(service: Connection, root: str) -> None:
    """The server computes the checksum itself, so it must validate the text in full."""
    step = begin(service)
    part = next(Path(root, written(root, step.query).directory).glob("*.ipc"))
    data = part.read_bytes()
    at = data.index(b"000000")
    part.write_bytes(data[:at] + b"\xff" + data[at + 1 :])
    with pytest.raises(CorruptPart, match="not valid Arrow data"):
        step.register(0, 1)


def test_rows_in_a_wrong_partition_are_refused(service: Connection, root: str) -> None:
    """A lookup reads only the partition of its key, and would miss such rows."""
    step = begin(service)
    written(root, step.query, partitions=PARTITIONS - 1)
    with pytest.raises(CorruptPart, match="belong to another partition"):
        step.register(0, 1)


def test_an_output_that_names_files_elsewhere_is_refused(service: Connection, root: str) -> None:
    other = write(root, rows(0, 10))
    step = begin(service)
    id = written(root, step.query)
    step.register(0, 1)
    theirs = AttemptId(other.steps()[0].body.query, 0, 0, 1)
    output = map_outputs.read_output(Store(root), id)
    assert output is not None
    table = manifest.decode(output.manifest, "output")
    files = [f.replace(id.directory, theirs.directory) for f in table["file"].to_pylist()]
    place = table.schema.get_field_index("file")
    stolen = table.set_column(place, table.schema.field(place), pa.array(files))
    Path(root, id.output).write_bytes(manifest.encode(stolen))
    with pytest.raises(BadCommit, match="names files elsewhere"):
        step.commit(1)
    assert ffq.Exchange(root).info().rows == 10
