"""Queries that a collector need not look at again soon: it looked late, and nothing was stale.

A task that outlives its query may still write, however late, so no query is settled for ever: it is
looked at again when it has become twice as old. This file only saves work. Whoever loses it, or an
entry to another collector that wrote at the same time, looks again.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ffq_spark.format import paths
from ffq_spark.store import Store

# Before this age, every collection looks.
SETTLES_MS = 7 * 24 * 3600 * 1000

_SCHEMA = pa.schema(
    [("query", pa.uint64()), ("looked_at_ms", pa.int64()), ("again_at_ms", pa.int64())]
)

Columns = tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]]


class Settled:
    """The settled queries of one root, as seen by one collection."""

    def __init__(self, store: Store, now: int) -> None:
        self._store = store
        self._now = now
        self._before = _read(store)
        self._queries = array("Q")
        self._again = array("q")

    def queries(self) -> NDArray[np.uint64]:
        """Those that need no look now. A look in the future was another clock's: not trusted."""
        queries, looked_at_ms, again_at_ms = self._before
        return queries[(looked_at_ms <= self._now) & (again_at_ms > self._now)]

    def add(self, query: int, ended_at_ms: int) -> None:
        """A look at a query that found nothing stale."""
        age = self._now - ended_at_ms
        if age >= SETTLES_MS:
            self._queries.append(query)
            self._again.append(self._now + age)

    def save(self, stored: Sequence[int]) -> None:
        """Write down what was found out, for the queries that still have data."""
        if not self._queries:
            return
        looked = np.array(self._queries, np.uint64)
        now = np.full(len(looked), self._now)
        found = looked, now, np.array(self._again, np.int64)
        others = np.setdiff1d(np.array(stored, np.uint64), looked)
        stay = np.isin(self._before[0], others)
        columns = [np.append(old[stay], new) for old, new in zip(self._before, found, strict=True)]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, _SCHEMA) as writer:
            writer.write_batch(pa.record_batch(columns, schema=_SCHEMA))
        self._store.replace(paths.SETTLED, sink.getvalue().to_pybytes())


def _read(store: Store) -> Columns:
    data = store.read_optional(paths.SETTLED)
    table = _SCHEMA.empty_table()
    if data is not None:
        # Damaged: everything is looked at, and the file is written anew.
        with contextlib.suppress(pa.ArrowException, ValueError):
            table = pa.ipc.open_file(data).read_all().cast(_SCHEMA)
    query, looked_at_ms, again_at_ms = (column.to_numpy() for column in table.columns)
    return query, looked_at_ms, again_at_ms
