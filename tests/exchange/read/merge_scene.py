"""Sorted exchanges for tests of merges, and the rows that a merge of them must return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from layouts import write_options

from ffq_spark import Exchange
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.write.attempt_writer import write_attempt
from ffq_spark.exchange.write.commit import commit_write
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.exchange.write.prepare import batch_delivery, prepare
from ffq_spark.format.ordering import sort_indices
from ffq_spark.format.texts import as_binary
from ffq_spark.store import Store


def write_maps(
    root: str, maps: Sequence[pa.RecordBatch], mode: str = "append", **options: Any
) -> Exchange:
    """Write one step of several map tasks."""
    given = {"keys": ("id",), "partitions": 4, "sort_by": ("k", "id"), **options}
    store, chosen = Store(root), write_options(**given)
    exchange = prepare(store, chosen, maps[0].schema)
    job = WriteJob.of(exchange, Ledger(store).begin(mode, "test"), chosen)
    outputs = [write_attempt(store, job, n, n + 1, [rows]) for n, rows in enumerate(maps)]
    commit_write(store, job, outputs, batch_delivery(chosen))
    return Exchange(root)


def random_maps(rows: int, maps: int) -> list[pa.RecordBatch]:
    """Return batches of about 40 bytes a row: two numbers, and a text that no codec compresses."""
    generator = np.random.default_rng(3)
    batches = []
    for start in range(0, rows, rows // maps):
        count = rows // maps
        texts = pa.py_buffer(generator.integers(32, 127, count * 20, np.uint8))
        offsets = pa.py_buffer(np.arange(0, (count + 1) * 20, 20, dtype=np.int32))
        columns = {
            "k": generator.integers(0, 1 << 62, count),
            "id": np.arange(start, start + count),
            "t": pa.StringArray.from_buffers(count, offsets, texts),
        }
        batches.append(pa.record_batch(columns))
    return batches


def expected(exchange: Exchange, by: Sequence[str], **options: Any) -> pa.Table:
    """Return the rows of a plain read in the order of a stable sort."""
    columns = options.pop("columns", None)
    names = None if columns is None else list(dict.fromkeys([*columns, *by]))
    plain = exchange.read(columns=names, **options).read_all().combine_chunks()
    order = sort_indices([_one(plain[name]) for name in by]) if plain.num_rows else []
    table = plain.take(order) if plain.num_rows else plain
    if columns is None:
        return table
    return table.select([*columns, *(n for n in table.column_names if n.startswith("_ffq"))])


def cells(table: pa.Table) -> list[str]:
    """Return rows as texts, in which NaN equals NaN, and strings may hold any bytes."""
    columns = []
    for column in table.columns:
        array = _one(column)
        kind = as_binary(array.type)
        columns.append((array if kind == array.type else array.view(kind)).to_pylist())
    return [repr(row) for row in zip(*columns, strict=True)]


def _one(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
