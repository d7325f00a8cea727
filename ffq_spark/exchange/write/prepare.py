"""Preparing a write: check its options and columns before anything is written."""

from __future__ import annotations

import socket
from dataclasses import replace

import pyarrow as pa

from ffq_spark.errors import BadOption
from ffq_spark.exchange.compute.zset import check_weight
from ffq_spark.exchange.ledger import routing
from ffq_spark.exchange.ledger.compatibility import propose
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.write.stream_write import BATCH_WRITES, Delivery
from ffq_spark.format import paths
from ffq_spark.format.conform import plain
from ffq_spark.format.ids import new_query
from ffq_spark.format.ordering import check_sortable
from ffq_spark.format.records import ExchangeRecord
from ffq_spark.format.schemas import require_column
from ffq_spark.format.statistics import choose
from ffq_spark.options import WriteOptions
from ffq_spark.store import Store


def prepare(
    store: Store, options: WriteOptions, schema: pa.Schema, spark_schema: str | None = None
) -> ExchangeRecord:
    """Return the exchange that a write means, after checking the write's options and columns.

    >>> options = WriteOptions(keys=("k",), partitions=4)
    >>> schema = pa.schema([("k", pa.int64())])
    >>> prepare(Store("memory://doc-prepare"), options, schema).partitions
    4
    """
    if len(set(schema.names)) != len(schema.names):
        names = ", ".join(schema.names)
        raise BadOption(f"column names must be unique; the rows have {names}", option="keys")
    schema = plain(schema)
    for name in options.sort_by:
        check_sortable(name, require_column(schema, name, "sortBy").type)
    choose(schema, options.statistics)
    if options.weight_column:
        check_weight(schema, options.weight_column)
    ledger = Ledger(store)
    format = ledger.format()
    existing = None
    if format is not None:
        format.check_writer(store.url(paths.FORMAT))
        # A first write that died after its outcome has decided about the exchange.
        ledger.publish_pending()
        existing = ledger.exchange()
        if existing is not None:
            known = routing.partition_counts(store, existing)
            existing = replace(existing, partitions=known[-1])
            if options.partitions in known:
                # A job may go on to name a number of partitions from before a rescale.
                options = replace(options, partitions=None)
    return propose(options, schema, spark_schema, existing, store.url())


def check_delivery(options: WriteOptions) -> None:
    """Refuse a batch write whose options about a stream are incomplete."""
    set_options = {
        "batch": options.batch is not None,
        "streamRun": bool(options.stream_run),
        "takeover": options.takeover,
    }
    for name, is_set in set_options.items():
        if is_set and not options.stream_id:
            raise BadOption(f"{name} needs the name of a stream", option="streamId")
    if options.stream_id and options.batch is None:
        raise BadOption("a batch write to a stream needs the number of the batch", option="batch")


def batch_delivery(options: WriteOptions, streaming_query: str = "") -> Delivery | None:
    """Return the batch of a stream that a batch write delivers, or None without a stream.

    `streaming_query` is the id of the streaming query that runs the write in its `foreachBatch`.

    >>> batch_delivery(WriteOptions(stream_id="nightly", batch=17, stream_run="a")).owner
    'a'
    """
    check_delivery(options)
    if options.batch is None:
        return None
    owner = options.stream_run or streaming_query or BATCH_WRITES
    if options.takeover and owner == BATCH_WRITES:
        message = "takeover needs a name for the new owner: batch writes without one share an owner"
        raise BadOption(message, option="streamRun")
    on_mismatch = options.on_mismatch or "fail"
    return Delivery(options.stream_id, owner, options.batch, options.takeover, on_mismatch)


def new_initiator(name: str = "") -> str:
    """Create a unique name for an initiator that is not a Spark application."""
    return f"{name or socket.gethostname()}-{new_query()}"
