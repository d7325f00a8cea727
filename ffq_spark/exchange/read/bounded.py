"""Parts and batches that are larger than what may be held.

A part is read twice in pieces, see `part_file`, and cut into streams of one batch each. A batch
that is too large is on local disk, and its rows are taken from there in slices. Buffers that are
compressed have to be in memory once: one column of one batch, and of one reader at a time.
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
from ffq_spark.exchange.read.decode import check_counts, decode_part, validate
from ffq_spark.exchange.read.fetch import fetch_parts
from ffq_spark.exchange.read.part import Part, list_parts
from ffq_spark.exchange.read.part_file import (
    PIECE_BYTES,
    Bytes,
    Checked,
    HeldBytes,
    PartBytes,
    check_part,
)
from ffq_spark.exchange.read.part_streams import Stream, cut
from ffq_spark.exchange.read.row_shape import RowShape
from ffq_spark.format import payload
from ffq_spark.format.payload import Decoder
from ffq_spark.store import ReadTotals, Store


@dataclass(frozen=True)
class Limits:
    """What a read may hold."""

    part_bytes: int
    """The largest part that is held whole; batches may have half of it."""
    loading: AbstractContextManager[Any] = field(default_factory=nullcontext)
    """What is held while a column that is too large is in memory: a lock lets in one at a time."""

    @property
    def batch_bytes(self) -> int:
        return max(1, self.part_bytes // 2)

    def piece_bytes(self, store: Store) -> int:
        """How much of a large part is read at once: elsewhere each request takes its time."""
        return PIECE_BYTES if store.is_local else max(PIECE_BYTES, self.part_bytes // 2)


def read_bounded(
    store: Store,
    parts: pa.Table,
    schema: pa.Schema,
    limits: Limits,
    *,
    output: pa.Schema | None = None,
    totals: ReadTotals | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of these parts, verified in full, within these limits.

    The order of rows depends on the parts alone, so that a read can go on where another ended.
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
    store: Store, part: Part, decoder: Decoder, limits: Limits, checked: Checked | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a part of any size, verified in full before the first is given.

    One that was `checked` is not read a second time, and is as it was then.
    """
    checked = checked or check_part(store, part, limits.piece_bytes(store))
    source = PartBytes(store, part, checked)
    return _batches(source, part, store.url(part.file), decoder, limits)


def _held_batches(
    data: pa.Buffer, part: Part, path: str, decoder: Decoder, limits: Limits
) -> Iterator[pa.RecordBatch]:
    """The rows of a part that is in memory: what is small when compressed may be large."""
    if payload.is_compressed(data):
        return _batches(HeldBytes(data, path), part, path, decoder, limits)
    return decode_part(decoder, part, data, path)


def _batches(
    source: Bytes, part: Part, path: str, decoder: Decoder, limits: Limits
) -> Iterator[pa.RecordBatch]:
    rows = batches = 0
    full = part.checksum is None
    for stream in cut(source, limits.batch_bytes, path):
        for batch, place in _loaded(stream, path, decoder, limits, full=full):
            rows += batch.num_rows
            batches += 1
            for piece in split_within(batch, limits.batch_bytes):
                yield _copied(piece, place) if place else piece
    check_counts(rows, batches, part, path)


def _loaded(
    stream: Stream, path: str, decoder: Decoder, limits: Limits, *, full: bool
) -> Iterator[tuple[pa.RecordBatch, Spilled | None]]:
    """The batches of a stream, validated, and where on disk they lie, if they do."""
    if stream.unpacked_bytes > limits.batch_bytes:
        yield _spilled_columns(stream, path, decoder, limits, full=full)
        return
    for batch in decoder.batches(stream.data, path):
        _validate(batch, path, stream.spilled, full=full)
        yield batch, stream.spilled


def _validate(batch: pa.RecordBatch, path: str, place: Spilled | None, *, full: bool) -> None:
    """Refuse a batch that is not what it says: before that, not even its size may be asked for.

    A column at a time, so that no more of what lies on disk is in memory.
    """
    for number in range(batch.num_columns):
        validate(batch.select([number]), path, full=full)
        if place:
            place.forget()


def _spilled_columns(
    stream: Stream, path: str, decoder: Decoder, limits: Limits, *, full: bool
) -> tuple[pa.RecordBatch, Spilled]:
    """A compressed batch, unpacked on disk a column at a time, all in one file."""
    starts: list[int] = []

    def fill(file: SpillFile) -> None:
        for column in decoder.columns():
            with limits.loading:
                starts.append(file.tell())
                file.write_stream(_validated(column.batches(stream.data, path), path, full=full))
                if stream.spilled:
                    stream.spilled.forget()

    place = Spilled(fill)
    ends = [*starts[1:], len(place.data)]
    spans = zip(starts, ends, strict=True)
    columns = [pa.ipc.open_stream(place.data[a:b]).read_next_batch() for a, b in spans]
    schema = pa.schema([column.schema.field(0) for column in columns])
    arrays = [column.column(0) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema), place


def _validated(
    batches: Iterator[pa.RecordBatch], path: str, *, full: bool
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        validate(batch, path, full=full)
        yield batch


def _copied(batch: pa.RecordBatch, place: Spilled) -> pa.RecordBatch:
    """A slice in memory of its own: pages of a file count whole, with their neighbours."""
    copy = pa.ipc.read_record_batch(batch.serialize(), batch.schema)
    place.forget()
    return copy


def _bounds(large: NDArray[np.bool_]) -> list[int]:
    """Where runs of parts begin, and the end: a large part is one, neighbours that are not one.

    >>> _bounds(np.array([False, False, True, True, False]))
    [0, 2, 3, 4, 5]
    """
    begins = [i for i in range(len(large)) if not i or large[i] or large[i - 1]]
    return [*begins, len(large)]


def _by_file(parts: pa.Table) -> pa.Table:
    """The parts of one file together, in the order they lie in it; files as they first appear."""
    if not parts.num_rows:
        return parts
    codes = parts["file"].combine_chunks().dictionary_encode().indices.to_numpy()
    order = np.lexsort((parts["offset"].to_numpy(), codes))
    return parts.take(pa.array(order))
