"""Writing a step from one process: the whole protocol around one map task."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from ffq_spark.errors import BadOption
from ffq_spark.exchange.agreement import propose
from ffq_spark.exchange.job import WriteJob, check_columns
from ffq_spark.exchange.ledger import Ledger
from ffq_spark.exchange.writer import write_attempt
from ffq_spark.format import layout
from ffq_spark.format.ids import new_query
from ffq_spark.format.records import ExchangeRecord, Outcome, StepRecord
from ffq_spark.options import WriteOptions
from ffq_spark.store import Store


def new_initiator(name: str = "") -> str:
    """Who starts a query, where no Spark application does."""
    return f"{name or socket.gethostname()}-{new_query()}"


def prepare(
    store: Store, options: WriteOptions, schema: pa.Schema, spark_schema: str | None = None
) -> ExchangeRecord:
    """Check everything about a write that can be checked before anything is written."""
    if len(set(schema.names)) != len(schema.names):
        raise BadOption(f"two columns have one name: {', '.join(schema.names)}", option="keys")
    check_columns(options, schema)
    ledger = Ledger(store)
    format = ledger.format()
    existing = None
    if format is not None:
        format.check_writer(store.url(layout.FORMAT))
        existing = ledger.exchange()
    return propose(options, schema, spark_schema, existing, store.url())


def write_batches(
    root: str,
    batches: Iterable[pa.RecordBatch],
    *,
    options: WriteOptions,
    mode: str = "append",
    schema: pa.Schema | None = None,
    storage_options: Mapping[str, Any] | None = None,
    store: Store | None = None,
) -> StepRecord:
    """Write batches as one step, without Spark.

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
    exchange = prepare(store, options, schema)
    ledger = Ledger(store)
    query = ledger.begin(mode, new_initiator(), stage=options.stage, query=options.query)
    try:
        job = WriteJob.of(exchange, query, options)
        rows = source if first is None else _chain(first, source)
        output = write_attempt(store, job, 0, 1, rows)
        return ledger.commit(query, exchange, [output], job.stats_fields)
    except BaseException as error:
        ledger.end(query.query, Outcome.ABORTED, f"{type(error).__name__}: {error}")
        raise


def _chain(first: pa.RecordBatch, rest: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    yield first
    yield from rest
