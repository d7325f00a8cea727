"""Read parts one after the other, and verify each part before its first row is returned."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from ffq_spark.exchange.read.decode import decode_part
from ffq_spark.exchange.read.fetch import fetch_parts
from ffq_spark.exchange.read.row_shape import RowShape
from ffq_spark.options import ReadOptions
from ffq_spark.store import ReadTotals, Store


def read_parts(
    store: Store,
    parts: pa.Table,
    schema: pa.Schema,
    options: ReadOptions | None = None,
    *,
    output: pa.Schema | None = None,
    totals: ReadTotals | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read the rows of parts; raise CorruptPart for a part that differs from the committed one.

    `schema` is the exchange's, `output` that of the rows. Parts come in their order, except that
    those of one packed file stay together.
    """
    options = options or ReadOptions()
    shape = RowShape(schema, output or schema, local=store.is_local)
    fetched = fetch_parts(
        store, parts, options.verify, options.credits, totals or ReadTotals(), shape.selection
    )
    for part, data in fetched:
        path = store.url(part.file)
        yield from shape.rows(part, decode_part(shape.decoder, part, data, path, options.verify))
