"""Read sorted parts as one sorted stream in bounded memory.

A part is verified as a whole before its first row, so all parts are read before the first row of
the stream. Rows above a limit go through local disk: see `sorting`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from ffq_spark.exchange.compute.batch_sizes import compact
from ffq_spark.exchange.compute.sorting import IN_MEMORY, sort_rows
from ffq_spark.exchange.read.bounded import MemoryLimits, read_bounded
from ffq_spark.exchange.read.serial_read import read_parts
from ffq_spark.options import ReadOptions
from ffq_spark.store import ReadTotals, Store


def read_sorted(
    store: Store,
    parts: pa.Table,
    schema: pa.Schema,
    order: Sequence[str],
    options: ReadOptions,
    *,
    output: pa.Schema | None = None,
    limits: MemoryLimits | None = None,
    totals: ReadTotals | None = None,
    in_memory: int = IN_MEMORY,
) -> Iterator[pa.RecordBatch]:
    """Read the rows of parts that are each sorted by `order`, in that order.

    Equal rows come in the order of a plain read.
    """
    output = output or schema
    by_order = [schema.field(name) for name in order if name not in output.names]
    opened = pa.schema([*output, *by_order])
    if limits is None:
        rows = read_parts(store, parts, schema, options, output=opened, totals=totals)
    else:
        in_memory = min(in_memory, limits.batch_bytes)
        rows = read_bounded(store, parts, schema, limits, output=opened, totals=totals)
    if not set(schema.names) <= set(opened.names):
        # Batches of some columns hold the bytes of all of them.
        rows = map(compact, rows)
    for batch in sort_rows(rows, order, in_memory):
        yield batch.select(output.names)
