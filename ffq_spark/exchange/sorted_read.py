"""Reading sorted parts as one sorted stream, in bounded memory.

Every part is a run. A part is verified as a whole before a row of it is given out, so all parts of
a partition are fetched first: into memory as far as the limit allows, else to local disk.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import pyarrow as pa

from ffq_spark.exchange.column_ranges import Selection
from ffq_spark.exchange.merge import merge_sorted
from ffq_spark.exchange.reader import Part, decode_part, fetch_parts, open_columns
from ffq_spark.exchange.sorting import sort_rows
from ffq_spark.exchange.spill import spill_directory
from ffq_spark.format.conform import conform
from ffq_spark.format.payload import Decoder
from ffq_spark.options import ReadOptions
from ffq_spark.store import ReadTotals, Store

IN_MEMORY = 128 << 20
# Of each run one or two batches are in hand.
_ROWS_IN_HAND = 1 << 16


def read_sorted(
    store: Store,
    parts: pa.Table,
    schema: pa.Schema,
    order: Sequence[str],
    options: ReadOptions,
    columns: Sequence[str] | None = None,
    totals: ReadTotals | None = None,
    in_memory: int = IN_MEMORY,
) -> Iterator[pa.RecordBatch]:
    """The rows of parts that are each sorted by `order`, in that order."""
    chosen = list(schema.names if columns is None else columns)
    needed = [*chosen, *(name for name in order if name not in chosen)]
    wanted = pa.schema([schema.field(name) for name in needed])
    decoder = open_columns(schema, needed)
    opened = Selection(schema, needed, local=store.is_local)
    total = sum(parts["bytes"].to_pylist())
    with _Aside(total > in_memory) as aside:
        fetched = [
            (part, aside.keep(data))
            for part, data in fetch_parts(
                store, parts, options.verify, options.credits, totals, opened
            )
        ]
        held = max(_ROWS_IN_HAND // max(len(fetched), 1), 1024)
        runs = [
            _run(decoder, part, kept(), wanted, held, store.url(part["file"]), options.verify)
            for part, kept in fetched
        ]
        del fetched
        for batch in _merged(runs, order, at_once=total <= in_memory // 8):
            yield batch.select(chosen)


def _merged(
    runs: list[Iterator[pa.RecordBatch]], order: Sequence[str], *, at_once: bool
) -> Iterator[pa.RecordBatch]:
    """Few rows are merged in one round, a sort that finds the runs, in a third of the time."""
    if at_once and len(runs) > 1:
        return sort_rows(chain.from_iterable(runs), order, stable=True)
    return merge_sorted(runs, order)


def _run(
    decoder: Decoder,
    part: Part,
    data: pa.Buffer,
    wanted: pa.Schema,
    rows: int,
    path: str,
    verify: str,
) -> Iterator[pa.RecordBatch]:
    for batch in decode_part(decoder, part, data, path, verify):
        found = conform(batch, wanted)
        for start in range(0, found.num_rows, rows):
            yield found.slice(start, rows)


class _Aside:
    """Where verified bytes stay until they are merged: as they are, or in a file without a name."""

    def __init__(self, on_disk: bool) -> None:
        self._on_disk = on_disk
        self._file = -1
        self._size = 0
        self._mapped: pa.Buffer | None = None

    def __enter__(self) -> _Aside:
        if self._on_disk:
            self._file, path = tempfile.mkstemp(prefix="ffq-merge-", dir=spill_directory())
            os.unlink(path)
        return self

    def keep(self, data: pa.Buffer) -> Callable[[], pa.Buffer]:
        """Take bytes; what is given back gets them, once all are here."""
        if not self._on_disk or not data.size:
            return lambda: data
        start = self._size
        with memoryview(data) as view:
            while view.nbytes > self._size - start:
                self._size += os.write(self._file, view[self._size - start :])
        size = data.size
        return lambda: self._all()[start : start + size]

    def _all(self) -> pa.Buffer:
        """The file as memory that the system fills and drops by itself."""
        if self._mapped is None:
            # One map for all parts: each would hold a descriptor, and there may be thousands.
            area = mmap.mmap(self._file, self._size, access=mmap.ACCESS_READ)
            self._mapped = pa.py_buffer(area)
        return self._mapped

    def __exit__(self, *ignored: object) -> None:
        if self._on_disk:
            os.close(self._file)
