"""Reading a Z-set as the rows it amounts to, one partition at a time.

Equal rows have equal keys and so share a partition: no other needs to be looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa

from ffq_spark.errors import BadOption
from ffq_spark.exchange.compute.pruning import Predicate
from ffq_spark.exchange.compute.zset import consolidate
from ffq_spark.exchange.read.parts import METADATA_FIELDS, read_parts
from ffq_spark.exchange.read.sorted_read import read_sorted
from ffq_spark.format.records import ExchangeRecord
from ffq_spark.options import ReadOptions
from ffq_spark.store import ReadTotals, Store


def read_rows(
    store: Store,
    parts: pa.Table,
    exchange: ExchangeRecord,
    options: ReadOptions,
    *,
    columns: Sequence[str] | None = None,
    metadata: bool = False,
    order: Sequence[str] = (),
    totals: ReadTotals | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of these parts, consolidated or in the order of all parts if that was asked for."""
    if order:
        return read_sorted(store, parts, exchange.schema, order, options, columns, totals)
    read = partial(
        read_parts,
        store,
        schema=exchange.schema,
        verify=options.verify,
        credits=options.credits,
        totals=totals,
    )
    if options.consolidate:
        return _consolidated(read, parts, exchange, columns)
    return read(parts=parts, columns=columns, metadata=metadata)


def _consolidated(
    read: Callable[..., Iterator[pa.RecordBatch]],
    parts: pa.Table,
    exchange: ExchangeRecord,
    columns: Sequence[str] | None,
) -> Iterator[pa.RecordBatch]:
    schema, weight = exchange.schema, exchange.weight
    assert weight is not None
    reduces = parts["reduce"].to_numpy()
    bounds = [0, *(np.flatnonzero(np.diff(reduces)) + 1).tolist(), len(reduces)]
    for start, end in pairwise(bounds):
        batches = read(parts=parts.slice(start, end - start))
        rows = consolidate(pa.Table.from_batches(batches, schema), weight)
        yield from rows.select(list(columns or schema.names)).combine_chunks().to_batches()


def check_readable(exchange: ExchangeRecord, options: ReadOptions) -> None:
    """Refuse names that would be there twice, and to consolidate what cannot be."""
    twice = [f.name for f in METADATA_FIELDS if f.name in exchange.schema.names]
    if options.metadata_columns and twice:
        message = f"the exchange has columns of its own named {', '.join(twice)}"
        raise BadOption(message, option="metadataColumns")
    if not options.consolidate:
        return
    if exchange.weight is None:
        raise BadOption("the exchange was written without a weightColumn", option="consolidate")
    if options.metadata_columns:
        raise BadOption("a consolidated row is of no single step", option="metadataColumns")


def usable(
    predicates: Sequence[Predicate], exchange: ExchangeRecord, options: ReadOptions
) -> list[Predicate]:
    """The predicates that may prune: a weight is not known before its parts are summed."""
    return [p for p in predicates if not options.consolidate or p.column != exchange.weight]
