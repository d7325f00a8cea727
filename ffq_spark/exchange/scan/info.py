"""Summarize an exchange and its current snapshot."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from ffq_spark.exchange.ledger import routing
from ffq_spark.exchange.scan.snapshot import take_snapshot
from ffq_spark.options import ReadOptions
from ffq_spark.store import Store


@dataclass(frozen=True)
class ExchangeInfo:
    """A summary of an exchange and of its current snapshot.

    The snapshot is read in `partitions`, and new steps are written in `write_partitions`.
    """

    root: str
    keys: tuple[str, ...]
    partitions: int
    write_partitions: int
    hash: str
    schema: pa.Schema
    step: int
    version: int
    steps: int
    parts: int
    rows: int
    bytes: int


def summarize(store: Store, root: str) -> ExchangeInfo:
    """Summarize the exchange in a store, under the name `root`.

    >>> from ffq_spark.examples import tiny_exchange
    >>> tiny_exchange("memory://doc-info").info().rows
    6
    """
    snapshot = take_snapshot(store, ReadOptions())
    exchange, steps = snapshot.exchange, snapshot.steps
    if snapshot.raw is not None:
        raw = snapshot.raw
        counts = [raw.num_rows, *(sum(raw[name].to_pylist()) for name in ("rows", "bytes"))]
    else:
        counts = [sum(getattr(s.body, name) for s in steps) for name in ("parts", "rows", "bytes")]
    return ExchangeInfo(
        root,
        exchange.keys,
        exchange.partitions,
        routing.partition_counts(store, snapshot.founding)[-1],
        exchange.hash,
        exchange.schema,
        steps[-1].step if steps else 0,
        steps[-1].version if steps else 0,
        len(steps),
        *counts,
    )
