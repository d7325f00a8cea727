"""Fetch the bytes of parts and compare them with what was committed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import pyarrow as pa

from ffq_spark.errors import CorruptPart, CorruptRecord
from ffq_spark.exchange.ledger.step_log import StepLog
from ffq_spark.exchange.read.column_ranges import ColumnRanges, ColumnSelection
from ffq_spark.exchange.read.part import Part, length_to_request, size_error
from ffq_spark.exchange.read.ranges import Range, join_ranges
from ffq_spark.format import paths, payload
from ffq_spark.format.chunks import check_chunks
from ffq_spark.store import Credits, ReadTotals, Store

RANGES_AT_ONCE = 4
"""Number of ranges of the largest joined size that fit into the credits."""
# The number of parts whose tails are requested together, before their columns.
_TAILS_AT_ONCE = 16


def fetch_parts(
    store: Store,
    parts: pa.Table,
    verify: str,
    credits: int,
    totals: ReadTotals,
    columns: ColumnSelection,
) -> Iterator[tuple[Part, pa.Buffer]]:
    """Fetch each part and compare its bytes with the manifest before anything is decoded.

    If the other columns of a part are large enough, only the bytes of these columns are requested.
    """
    for file in parts["file"].unique().to_pylist():
        if not paths.is_data(file):
            raise _outside(store, file)
    separate = columns.pays(parts)
    ranges = join_ranges(parts, max(credits // RANGES_AT_ONCE, 1), separate)
    requests: Iterable[Range | ColumnRanges] = ranges
    if separate.any():
        requests = _reduced(store, ranges, columns, verify, credits, totals)
    for request, buffers in store.fetch(requests, Credits(credits), totals):
        if isinstance(request, ColumnRanges):
            if buffers is None:
                raise _missing(store, request.part)
            yield request.part, request.assemble(buffers, store.url(request.file), verify)
            continue
        if buffers is None:
            raise _missing(store, request.parts[0])
        (joined,) = buffers
        for part in request.parts:
            start = part.offset - request.start
            # A file that has grown is damaged, just like one that is too short.
            data = joined[start : len(joined) if part.ends_file else start + part.bytes]
            _check(data, part, store.url(part.file), verify)
            yield part, data


def _reduced(
    store: Store,
    ranges: Iterator[Range],
    columns: ColumnSelection,
    verify: str,
    credits: int,
    totals: ReadTotals,
) -> Iterator[Range | ColumnRanges]:
    """Return the ranges in their order, those of single parts reduced to the chosen columns.

    Where the columns of a part lie is known from its tail, which is fetched here.
    """
    while block := list(islice(ranges, _TAILS_AT_ONCE)):
        requests = [_Tail.of(range.parts[0]) for range in block if range.separate]
        tails = store.fetch(requests, Credits(credits), totals)
        for range in block:
            reduced = None
            if range.separate:
                request, buffers = next(tails)
                tail = _checked_tail(store, request.part, buffers, verify)
                reduced = columns.ranges(request.part, tail, store.url(range.file), verify)
            yield reduced or range


class _Tail(NamedTuple):
    """The request of a part's last bytes, which hold the directory of its columns."""

    part: Part
    file: str
    length: int
    spans: list[tuple[int, int]]

    @classmethod
    def of(cls, part: Part) -> _Tail:
        length = length_to_request(part.tail_bytes, ends_file=part.ends_file)
        start = part.offset + part.bytes - part.tail_bytes
        return cls(part, part.file, part.tail_bytes, [(start, length)])


def _checked_tail(
    store: Store, part: Part, buffers: list[pa.Buffer] | None, verify: str
) -> pa.Buffer:
    if buffers is None:
        raise _missing(store, part)
    (tail,) = buffers
    if len(tail) < part.tail_bytes or (len(tail) > part.tail_bytes and verify != "none"):
        raise size_error(part, store.url(part.file), is_short=len(tail) < part.tail_bytes)
    return tail[: part.tail_bytes]


def fetch_part(store: Store, part: Part) -> pa.Buffer:
    """Fetch one part and verify its bytes in full."""
    data = fetch_range(store, part, 0, part.bytes)
    _check(data, part, store.url(part.file), "full")
    return data


def fetch_range(store: Store, part: Part, start: int, length: int) -> pa.Buffer:
    """Fetch bytes of a part, from a position in it on; more come back if its file has grown."""
    if not paths.is_data(part.file):
        raise _outside(store, part.file)
    reaches_end = part.ends_file and start + length == part.bytes
    length = length_to_request(length, ends_file=reaches_end)
    try:
        return store.read_range(part.file, part.offset + start, length)
    except FileNotFoundError:
        raise _missing(store, part) from None


def _outside(store: Store, file: str) -> CorruptRecord:
    """Return the error for a manifest that names a file outside the data tree."""
    message = "the manifest names a part outside the exchange's data"
    return CorruptRecord(message, path=store.url(file))


def _missing(store: Store, part: Part) -> CorruptPart:
    """Return the error of a part without a file, or raise StepExpired if its step has expired."""
    if part.step is not None:
        StepLog(store).refuse_expired(part.step)
    return CorruptPart("the part is missing", path=store.url(part.file))


def _check(data: pa.Buffer, part: Part, path: str, verify: str) -> None:
    if verify != "none" and len(data) != part.bytes:
        raise size_error(part, path, is_short=len(data) < part.bytes)
    if verify == "full":
        if part.checksum is not None and payload.checksum(data) != part.checksum:
            raise CorruptPart("checksum mismatch", path=path)
        if part.chunks:
            check_chunks(data, part.chunks, path)
