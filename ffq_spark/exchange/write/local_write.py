"""Write a step from one process: the whole commit protocol around one map task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import pyarrow as pa

from ffq_spark.errors import BadOption
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.write.attempt_writer import write_attempt
from ffq_spark.exchange.write.commit import commit_write
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.exchange.write.prepare import batch_delivery, new_initiator, prepare
from ffq_spark.format.records import StepRecord
from ffq_spark.options import WriteOptions
from ffq_spark.store import Store


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
    """Write batches as one step, without Spark; None for a batch that is in the log already.

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
            raise BadOption("a write without batches needs a schema", option="schema")
        schema = first.schema
    delivery = batch_delivery(options)
    exchange = prepare(store, options, schema)
    ledger = Ledger(store)
    query = ledger.begin(mode, new_initiator(), stage=options.stage, query=options.query)
    try:
        job = WriteJob.of(exchange, query, options)
        rows = source if first is None else chain([first], source)
        output = write_attempt(store, job, 0, 1, rows)
        return commit_write(store, job, [output], delivery)
    except BaseException as error:
        ledger.give_up(query.query, error)
        raise
