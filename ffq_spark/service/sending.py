"""What a ticket gives, within a reader's share: nothing is read before somebody wants it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pyarrow as pa

from ffq_spark.exchange.compute.batch_sizes import resize
from ffq_spark.exchange.read.bounded import Limits
from ffq_spark.exchange.read.part_schema import part_schema
from ffq_spark.options import ServeOptions
from ffq_spark.service import fetching, reading
from ffq_spark.service.roots import Roots
from ffq_spark.service.share import Share
from ffq_spark.service.wire import Fetch

Batches: TypeAlias = Callable[[], Iterator[pa.RecordBatch]]


class Sending:
    """Rows and bytes for readers who have equal shares of the server's credits."""

    def __init__(self, roots: Roots, options: ServeOptions) -> None:
        self._roots = roots
        self._share = Share.of(options)
        self._limits = Limits(self._share.part_bytes, threading.Lock())

    def rows(self, plan: reading.Plan, parts: pa.Table, skip: int = 0) -> Batches:
        """The rows of some of a plan's parts, but for the first `skip`."""
        return self._sized(lambda: reading.rows(plan, parts, self._limits, skip))

    def part(self, fetch: Fetch) -> tuple[pa.Schema, Batches]:
        """One part: its columns and rows, or its bytes."""
        store = self._roots.store(fetch.exchange)
        part = fetching.locate(store, fetch)
        limits = self._limits
        if fetch.raw:
            return fetching.RAW_SCHEMA, lambda: fetching.raw_chunks(store, part, fetch, limits)
        schema = part_schema(store, part)
        return schema, self._sized(lambda: fetching.part_batches(store, part, schema, limits))

    def _sized(self, batches: Batches) -> Batches:
        return lambda: resize(batches(), self._share.message_bytes)
