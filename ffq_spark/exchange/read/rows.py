"""Read the rows of a snapshot's parts: choose how, and convert them to the requested columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa

from ffq_spark.errors import BadOption
from ffq_spark.exchange.compute.hash_shards import HashShard, check_divisible
from ffq_spark.exchange.compute.keys import matching_rows
from ffq_spark.exchange.compute.pruning import Predicate
from ffq_spark.exchange.compute.zset import consolidate
from ffq_spark.exchange.read.bounded import MemoryLimits, read_bounded
from ffq_spark.exchange.read.row_shape import METADATA_FIELDS
from ffq_spark.exchange.read.serial_read import read_parts
from ffq_spark.exchange.read.sorted_read import read_sorted
from ffq_spark.format.conform import conform
from ffq_spark.format.records import ExchangeRecord
from ffq_spark.options import ReadOptions
from ffq_spark.store import ReadTotals, Store


def read_rows(
    store: Store,
    parts: pa.Table,
    exchange: ExchangeRecord,
    options: ReadOptions,
    output: pa.Schema,
    *,
    order: Sequence[str] = (),
    equal: Sequence[Predicate] = (),
    shard: HashShard | None = None,
    limits: MemoryLimits | None = None,
    totals: ReadTotals | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read the rows of parts with the columns and types of `output`.

    `order`, or else the option `mergeBy`, names columns by which all parts are sorted; rows then
    come in that order. `equal` keeps the rows of one key, and `shard` those of one shard. `limits`
    bounds the memory, however large a part or a batch is.
    """
    keys = [exchange.schema.field(p.column) for p in equal if p.column not in output.names]
    opened = pa.schema([*output, *keys])
    schema = exchange.schema
    if shard is not None:
        check_divisible(exchange)
        opened = _with_keys(exchange, opened)
    if limits is not None:
        # Within limits every part is verified in full, because a read may resume later.
        options = replace(options, credits=limits.part_bytes, verify="full")
    read = partial(read_parts, store, schema=schema, options=options, totals=totals)
    if order := order or options.merge_by:
        rows = read_sorted(
            store, parts, schema, order, options, output=opened, limits=limits, totals=totals
        )
    elif options.consolidate:
        rows = _consolidated(read, parts, exchange, opened, shard)
    elif limits is not None:
        rows = read_bounded(store, parts, schema, limits, output=opened, totals=totals)
    else:
        rows = read(parts, output=opened)
    if shard is not None and not options.consolidate:
        rows = shard.select(exchange, rows)
    if equal:
        rows = (matching_rows(batch, equal) for batch in rows)
    if len(opened) > len(output):
        rows = (batch.select(output.names) for batch in rows)
    return rows if shard is None else (_converted(batch, output) for batch in rows)


def _with_keys(exchange: ExchangeRecord, output: pa.Schema) -> pa.Schema:
    """Return the columns of `output` and the keys, with types as written: so they are hashed."""
    names = [*output.names, *(key for key in exchange.keys if key not in output.names)]
    own = exchange.schema
    return pa.schema([(own if name in own.names else output).field(name) for name in names])


def _converted(batch: pa.RecordBatch, output: pa.Schema) -> pa.RecordBatch:
    # A batch without columns still has a number of rows.
    return conform(batch, output) if len(output) else batch


def _consolidated(
    read: Callable[..., Iterator[pa.RecordBatch]],
    parts: pa.Table,
    exchange: ExchangeRecord,
    output: pa.Schema,
    shard: HashShard | None,
) -> Iterator[pa.RecordBatch]:
    """Read and consolidate a Z-set, one partition, or one shard of it, at a time.

    Equal rows have equal keys, so they are in the same partition and the same shard. The parts of a
    partition are neighbours.
    """
    assert exchange.weight is not None
    reduces = parts["reduce"].to_numpy() % exchange.partitions
    bounds = [0, *(np.flatnonzero(np.diff(reduces)) + 1).tolist(), len(reduces)]
    for start, end in pairwise(bounds):
        batches = read(parts.slice(start, end - start))
        if shard is not None:
            batches = shard.select(exchange, batches)
        rows = consolidate(pa.Table.from_batches(batches, exchange.schema), exchange.weight)
        for batch in rows.select(output.names).combine_chunks().to_batches():
            yield conform(batch, output)


def check_readable(exchange: ExchangeRecord, options: ReadOptions) -> None:
    """Refuse options that the exchange cannot serve.

    Metadata columns must not have the name of a column. Only a Z-set can be consolidated, and not
    while it is merged. Only rows with keys can be divided by their hash.
    """
    if options.split == "hash":
        check_divisible(exchange)
    twice = [f.name for f in METADATA_FIELDS if f.name in exchange.schema.names]
    if options.metadata_columns and twice:
        message = f"the exchange has columns of its own named {', '.join(twice)}"
        raise BadOption(message, option="metadataColumns")
    if not options.consolidate:
        return
    if exchange.weight is None:
        raise BadOption("the exchange was written without a weightColumn", option="consolidate")
    if options.merge_by:
        message = "consolidated rows come in no order: leave mergeBy out, and sort what is read"
        raise BadOption(message, option="mergeBy")
    if options.metadata_columns:
        message = "a consolidated row belongs to no single step, so it has no metadata columns"
        raise BadOption(message, option="metadataColumns")


def prunable(
    predicates: Sequence[Predicate], exchange: ExchangeRecord, options: ReadOptions
) -> list[Predicate]:
    """Return the predicates that may prune: weights are unknown until they have been summed."""
    return [p for p in predicates if not options.consolidate or p.column != exchange.weight]
