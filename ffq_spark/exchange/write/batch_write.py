"""Writing a step from one process: the whole protocol around one map task."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ffq_spark.errors import BadOption
from ffq_spark.exchange.ledger.compatibility import propose
from ffq_spark.exchange.ledger.ledger import AttemptOutput, Ledger
from ffq_spark.exchange.write.attempt_writer import write_attempt
from ffq_spark.exchange.write.job import WriteJob, check_columns
from ffq_spark.exchange.write.stream_write import BATCH_WRITES, Delivery, commit_batch
from ffq_spark.format import paths
from ffq_spark.format.conform import plain
from ffq_spark.format.ids import new_query
from ffq_spark.format.records import ExchangeRecord, StepRecord
from ffq_spark.options import WriteOptions
from ffq_spark.store import Store


def check_delivery(options: WriteOptions) -> None:
    """Refuse a batch write whose options about a stream are incomplete."""
    given = {
        "batch": options.batch is not None,
        "streamRun": bool(options.stream_run),
        "takeover": options.takeover,
    }
    for name in given:
        if given[name] and not options.stream_id:
            raise BadOption(f"{name} is about a stream; set its name", option="streamId")
    if options.stream_id and options.batch is None:
        raise BadOption("a batch write to a stream needs the batch's number", option="batch")


def batch_delivery(options: WriteOptions, streaming_query: str = "") -> Delivery | None:
    """Tell which batch of which stream a batch write is, and who owns it; None without a stream.

    `streaming_query` is the id of the streaming query that runs the write in its `foreachBatch`.

    >>> batch_delivery(WriteOptions(stream_id="nightly", batch=17, stream_run="a")).owner
    'a'
    """
    check_delivery(options)
    if options.batch is None:
        return None
    owner = options.stream_run or streaming_query or BATCH_WRITES
    if options.takeover and owner == BATCH_WRITES:
        message = "takeover needs a name for the new owner: batch writes without one are all one"
        raise BadOption(message, option="streamRun")
    on_mismatch = options.on_mismatch or "fail"
    return Delivery(options.stream_id, owner, options.batch, options.takeover, on_mismatch)


def new_initiator(name: str = "") -> str:
    """Who starts a query, where no Spark application does."""
    return f"{name or socket.gethostname()}-{new_query()}"


def prepare(
    store: Store, options: WriteOptions, schema: pa.Schema, spark_schema: str | None = None
) -> ExchangeRecord:
    """Check everything about a write that can be checked before anything is written."""
    if len(set(schema.names)) != len(schema.names):
        raise BadOption(f"two columns have one name: {', '.join(schema.names)}", option="keys")
    schema = plain(schema)
    check_columns(options, schema)
    ledger = Ledger(store)
    format = ledger.format()
    existing = None
    if format is not None:
        format.check_writer(store.url(paths.FORMAT))
        existing = ledger.exchange()
    return propose(options, schema, spark_schema, existing, store.url())


def commit_write(
    store: Store, job: WriteJob, outputs: Sequence[AttemptOutput], delivery: Delivery | None
) -> StepRecord | None:
    """Commit a batch write; a batch of a stream by the rule of streams."""
    if delivery is not None:
        return commit_batch(store, job, outputs, delivery)
    return Ledger(store).commit(
        job.query, job.exchange, outputs, job.stats_fields, sort_by=job.sort_by
    )


def write_batches(
    root: str,
    batches: Iterable[pa.RecordBatch],
    *,
    options: WriteOptions,
    mode: str = "append",
    schema: pa.Schema | None = None,
    storage_options: Mapping[str, Any] | None = None,
    store: Store | None = None,
) -> StepRecord | None:
    """Write batches as one step, without Spark; None for a batch of a stream that is there already.

    >>> batch = pa.record_batch({"k": [1, 2, 3]})
    >>> options = WriteOptions(keys=("k",), partitions=2)
    >>> write_batches("memory://doc-write", [batch], options=options).body.rows
    3
    """
    unsafe = options.unsafe_commit
    store = store or Store(root, storage_options, unsafe_commit=unsafe)
    source = iter(batches)
    first = next(source, None)
    if schema is None:
        if first is None:
            raise BadOption("no batches, and no schema to write none with", option="schema")
        schema = first.schema
    delivery = batch_delivery(options)
    exchange = prepare(store, options, schema)
    ledger = Ledger(store)
    query = ledger.begin(mode, new_initiator(), stage=options.stage, query=options.query)
    try:
        job = WriteJob.of(exchange, query, options)
        rows = source if first is None else _chain(first, source)
        output = write_attempt(store, job, 0, 1, rows)
        return commit_write(store, job, [output], delivery)
    except BaseException as error:
        ledger.give_up(query.query, error)
        raise


def _chain(first: pa.RecordBatch, rest: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    yield first
    yield from rest
