"""Open the streams of tickets, within a reader's budget. Nothing is read before the first batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pyarrow as pa

from ffq_spark.exchange.compute.batch_sizes import resize
from ffq_spark.exchange.compute.hash_shards import HashShard
from ffq_spark.exchange.read.bounded import MemoryLimits
from ffq_spark.exchange.read.part_schema import part_schema
from ffq_spark.options import ServeOptions
from ffq_spark.service.server.part_fetch import RAW_SCHEMA, find_part, part_batches, raw_chunks
from ffq_spark.service.server.plan_rows import plan_rows
from ffq_spark.service.server.read_plans import Plan
from ffq_spark.service.server.reader_budget import ReaderBudget
from ffq_spark.service.server.roots import Roots
from ffq_spark.service.wire.messages import Fetch

OpenBatches: TypeAlias = Callable[[], Iterator[pa.RecordBatch]]


class RowStreams:
    """Streams of rows or bytes for readers with equal budgets."""

    def __init__(self, roots: Roots, options: ServeOptions) -> None:
        self._roots = roots
        self._budget = ReaderBudget.of(options)
        self._limits = MemoryLimits(self._budget.part_bytes, threading.Lock())

    def rows(
        self, plan: Plan, parts: pa.Table, skip: int = 0, shard: HashShard | None = None
    ) -> OpenBatches:
        """Stream the rows of a plan's parts, or of a shard, after the first `skip`."""
        return self._resized(lambda: plan_rows(plan, parts, self._limits, skip, shard))

    def part(self, fetch: Fetch) -> tuple[pa.Schema, OpenBatches]:
        """Stream one part: its bytes in chunks, or its rows."""
        store = self._roots.store(fetch.exchange)
        part = find_part(store, fetch)
        limits = self._limits
        if fetch.raw:
            return RAW_SCHEMA, lambda: raw_chunks(store, part, fetch, limits)
        schema = part_schema(store, part)
        return schema, self._resized(lambda: part_batches(store, part, schema, limits))

    def _resized(self, open_batches: OpenBatches) -> OpenBatches:
        return lambda: resize(open_batches(), self._budget.message_bytes)
