"""The times at which gc checks old committed queries again for stale attempts.

A task that outlives its query may write at any later time, so gc must check every query again. A
query without stale attempts is checked again when it is twice as old. The file only saves work: if
it is lost or damaged, or if two runs overwrite each other's entries, gc checks more queries.
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

ALWAYS_CHECKED_MS = 7 * 24 * 3600 * 1000
"""Every gc run checks the queries that ended less than this time ago."""

# On storage, an entry's check is a "look", and its next check is "again".
_SCHEMA = pa.schema(
    [("query", pa.uint64()), ("looked_at_ms", pa.int64()), ("again_at_ms", pa.int64())]
)

Columns = tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]]


class RecheckTimes:
    """The recheck times of one root: as an earlier run stored them, and as this run changes them.

    >>> RecheckTimes(Store("memory://doc-recheck"), now=0).not_due().tolist()
    []
    """

    def __init__(self, store: Store, now: int) -> None:
        self._store = store
        self._now = now
        self._stored = _read(store)
        self._queries = array("Q")
        self._again = array("q")

    def not_due(self) -> NDArray[np.uint64]:
        """Return the queries that need no check yet.

        Entries with a future check time come from a clock that was ahead, and are ignored.
        """
        queries, checked_at_ms, again_at_ms = self._stored
        return queries[(checked_at_ms <= self._now) & (again_at_ms > self._now)]

    def postpone(self, query: int, ended_at_ms: int) -> None:
        """Postpone the next check of a query until it is twice as old, if it is old enough."""
        age = self._now - ended_at_ms
        if age >= ALWAYS_CHECKED_MS:
            self._queries.append(query)
            self._again.append(self._now + age)

    def save(self, queries_with_data: Sequence[int]) -> None:
        """Store the new times, and the earlier ones of the other queries that still have data."""
        if not self._queries:
            return
        checked = np.array(self._queries, np.uint64)
        now = np.full(len(checked), self._now)
        new = checked, now, np.array(self._again, np.int64)
        others = np.setdiff1d(np.array(queries_with_data, np.uint64), checked)
        kept = np.isin(self._stored[0], others)
        columns = [
            np.append(old[kept], added) for old, added in zip(self._stored, new, strict=True)
        ]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, _SCHEMA) as writer:
            writer.write_batch(pa.record_batch(columns, schema=_SCHEMA))
        self._store.replace(paths.RECHECK_TIMES, sink.getvalue().to_pybytes())


def _read(store: Store) -> Columns:
    data = store.read_optional(paths.RECHECK_TIMES)
    table = _SCHEMA.empty_table()
    if data is not None:
        # A damaged file counts as empty: gc checks every query and writes the file again.
        with contextlib.suppress(pa.ArrowException, ValueError):
            table = pa.ipc.open_file(data).read_all().cast(_SCHEMA)
    query, checked_at_ms, again_at_ms = (column.to_numpy() for column in table.columns)
    return query, checked_at_ms, again_at_ms
