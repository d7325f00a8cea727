"""Read parts and batches that are larger than the memory a reader may use.

A large part is read twice in pieces, see `checked_pieces`, and split into streams of one batch
each. A large batch is spilled to local disk, and its rows are sliced from the file. Compressed
buffers must be in memory once: one column of one batch, for one reader at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ffq_spark.exchange.compute.batch_sizes import split_within
from ffq_spark.exchange.compute.spill import Spilled, SpillFile
from ffq_spark.exchange.read.checked_pieces import (
    PIECE_BYTES,
    Bytes,
    Checked,
    HeldBytes,
    PartBytes,
    check_part,
)
from ffq_spark.exchange.read.decode import check_counts, decode_part, validate, validated
from ffq_spark.exchange.read.fetch import fetch_parts
from ffq_spark.exchange.read.part import Part, list_parts
from ffq_spark.exchange.read.part_streams import Stream, split_streams
from ffq_spark.exchange.read.row_shape import RowShape
from ffq_spark.format import payload
from ffq_spark.format.payload import Decoder
from ffq_spark.store import ReadTotals, Store


@dataclass(frozen=True)
class MemoryLimits:
    """The memory that a read may use for parts and batches."""

    part_bytes: int
    """The largest part that is held in memory whole; a batch may have half of it."""
    loading: AbstractContextManager[Any] = field(default_factory=nullcontext)
    """Entered while a column above the limit is in memory: a lock admits one reader at a time."""

    @property
    def batch_bytes(self) -> int:
        return max(1, self.part_bytes // 2)

    def piece_bytes(self, store: Store) -> int:
        """Return the bytes of a large part to read at once: remote requests should be few."""
        return PIECE_BYTES if store.is_local else max(PIECE_BYTES, self.part_bytes // 2)


def read_bounded(
    store: Store,
    parts: pa.Table,
    schema: pa.Schema,
    limits: MemoryLimits,
    *,
    output: pa.Schema | None = None,
    totals: ReadTotals | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read the rows of parts within limits, each part verified in full.

    The order of rows depends on the parts alone, so a read can go on where another one ended.
    """
    shape = RowShape(schema, output or schema, local=store.is_local)
    totals = totals or ReadTotals()
    parts = _by_file(parts)
    large = parts["bytes"].to_numpy() > limits.part_bytes
    for start, end in pairwise(_bounds(large)):
        run = parts.slice(start, end - start)
        if large[start]:
            (part,) = list_parts(run)
            yield from shape.rows(part, read_large_part(store, part, shape.decoder, limits))
            continue
        for part, data in fetch_parts(
            store, run, "full", limits.part_bytes, totals, shape.selection
        ):
            path = store.url(part.file)
            yield from shape.rows(part, _held_batches(data, part, path, shape.decoder, limits))


def read_large_part(
    store: Store, part: Part, decoder: Decoder, limits: MemoryLimits, checked: Checked | None = None
) -> Iterator[pa.RecordBatch]:
    """Read the rows of a part of any size, verified in full before the first row.

    A part that was `checked` before is not checked again; its bytes must still be the same.
    """
    checked = checked or check_part(store, part, limits.piece_bytes(store))
    source = PartBytes(store, part, checked)
    return _batches(source, part, store.url(part.file), decoder, limits)


def _held_batches(
    data: pa.Buffer, part: Part, path: str, decoder: Decoder, limits: MemoryLimits
) -> Iterator[pa.RecordBatch]:
    """Decode a part that is in memory; its compressed batches may exceed the limits."""
    if payload.is_compressed(data):
        return _batches(HeldBytes(data, path), part, path, decoder, limits)
    return decode_part(decoder, part, data, path)


def _batches(
    source: Bytes, part: Part, path: str, decoder: Decoder, limits: MemoryLimits
) -> Iterator[pa.RecordBatch]:
    rows = batches = 0
    full = part.checksum is None
    for stream in split_streams(source, limits.batch_bytes, path):
        for batch, place in _loaded(stream, path, decoder, limits, full=full):
            rows += batch.num_rows
            batches += 1
            for piece in split_within(batch, limits.batch_bytes):
                yield place.copy(piece) if place else piece
    check_counts(rows, batches, part, path)


def _loaded(
    stream: Stream, path: str, decoder: Decoder, limits: MemoryLimits, *, full: bool
) -> Iterator[tuple[pa.RecordBatch, Spilled | None]]:
    """Decode and validate the batches of a stream; return each with its file if it is on disk."""
    if stream.unpacked_bytes > limits.batch_bytes:
        yield _spilled_columns(stream, path, decoder, limits, full=full)
        return
    for batch in decoder.batches(stream.data, path):
        _validate(batch, path, stream.spilled, full=full)
        yield batch, stream.spilled


def _validate(batch: pa.RecordBatch, path: str, spilled: Spilled | None, *, full: bool) -> None:
    """Validate a batch, before which not even its size may be computed.

    Each column is validated by itself, so that no more of a spilled batch is in memory.
    """
    for number in range(batch.num_columns):
        validate(batch.select([number]), path, full=full)
        if spilled:
            spilled.forget()


def _spilled_columns(
    stream: Stream, path: str, decoder: Decoder, limits: MemoryLimits, *, full: bool
) -> tuple[pa.RecordBatch, Spilled]:
    """Decompress a batch to one file on disk, one column at a time."""
    starts: list[int] = []

    def fill(file: SpillFile) -> None:
        for column in decoder.columns():
            with limits.loading:
                starts.append(file.tell())
                file.write_stream(validated(column.batches(stream.data, path), path, full=full))
                if stream.spilled:
                    stream.spilled.forget()

    place = Spilled(fill)
    ends = [*starts[1:], len(place.data)]
    spans = zip(starts, ends, strict=True)
    columns = [pa.ipc.open_stream(place.data[a:b]).read_next_batch() for a, b in spans]
    schema = pa.schema([column.schema.field(0) for column in columns])
    arrays = [column.column(0) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema), place


def _bounds(large: NDArray[np.bool_]) -> list[int]:
    """Return the bounds of runs of parts: each large part is a run, and so are small neighbours.

    >>> _bounds(np.array([False, False, True, True, False]))
    [0, 2, 3, 4, 5]
    """
    begins = [i for i in range(len(large)) if not i or large[i] or large[i - 1]]
    return [*begins, len(large)]


def _by_file(parts: pa.Table) -> pa.Table:
    """Order parts by file and offset; files come in the order of their first part."""
    if not parts.num_rows:
        return parts
    codes = parts["file"].combine_chunks().dictionary_encode().indices.to_numpy()
    order = np.lexsort((parts["offset"].to_numpy(), codes))
    return parts.take(pa.array(order))
