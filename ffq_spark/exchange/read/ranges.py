"""Plan which bytes are requested together: neighbouring parts of one file are one range."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ffq_spark.exchange.read.part import Part, length_to_request, list_parts

MAX_GAP = 256 << 10
"""Reading this many unwanted bytes costs less than another request."""


class Range(NamedTuple):
    """Bytes of one file, and the parts that lie in them."""

    file: str
    start: int
    length: int
    spans: list[tuple[int, int]]
    """Start and length of the request, which asks for one byte more at the file's end."""
    parts: tuple[Part, ...]
    separate: bool
    """Whether the range was planned for a single part, so that columns may be left out."""


def join_ranges(
    parts: pa.Table, limit: int, separate: NDArray[np.bool_] | None = None
) -> Iterator[Range]:
    """Join parts to ranges of at most `limit` bytes, or of one part that is larger.

    Files come in the order of their first part, the parts of a file in the order they lie in it.
    Each part that `separate` marks has a range of its own.

    >>> parts = pa.table({"file": ["a", "b", "a"], "offset": [0, 0, 8], "bytes": [8, 8, 8]})
    >>> [(range.file, range.start, range.length) for range in join_ranges(parts, 16)]
    [('a', 0, 16), ('b', 0, 8)]
    """
    if not parts.num_rows:
        return
    files = parts["file"].combine_chunks().dictionary_encode()
    codes = files.indices.to_numpy()
    offsets, sizes = parts["offset"].to_numpy(), parts["bytes"].to_numpy()
    marks = np.zeros(len(codes), np.bool_) if separate is None else separate
    if len(files.dictionary) < len(codes):
        order = np.lexsort((offsets, codes))
        parts = parts.take(pa.array(order))
        codes, offsets, sizes, marks = codes[order], offsets[order], sizes[order], marks[order]
    rows = list_parts(parts)
    for first, last in pairwise(_bounds(codes, offsets, sizes, marks, limit)):
        own = tuple(islice(rows, last - first))
        start = own[0].offset
        length = own[-1].offset + own[-1].bytes - start
        spans = [(start, length_to_request(length, ends_file=own[-1].ends_file))]
        yield Range(own[0].file, start, length, spans, own, bool(marks[first]))


def count_ranges(parts: pa.Table | pa.RecordBatch, limit: int) -> int:
    """Count the ranges that `join_ranges` plans for whole parts, without listing the parts.

    >>> parts = pa.table({"file": ["a", "b", "a"], "offset": [0, 0, 8], "bytes": [8, 8, 8]})
    >>> count_ranges(parts, 16)
    2
    """
    files = parts["file"]
    if isinstance(files, pa.ChunkedArray):
        files = files.combine_chunks()
    codes = files.dictionary_encode().indices.to_numpy()
    if len(codes) and codes.max() == len(codes) - 1:
        return len(codes)
    offsets, sizes = parts["offset"].to_numpy(), parts["bytes"].to_numpy()
    order = np.lexsort((offsets, codes))
    marks = np.zeros(len(codes), np.bool_)
    return len(_bounds(codes[order], offsets[order], sizes[order], marks, limit)) - 1


def _bounds(
    codes: NDArray[np.int32],
    offsets: NDArray[np.int64],
    sizes: NDArray[np.int64],
    marks: NDArray[np.bool_],
    limit: int,
) -> list[int]:
    """Return the row at which each range begins, and the number of rows."""
    ends = offsets + sizes
    apart = np.ones(len(codes), np.bool_)
    apart[1:] = (codes[1:] != codes[:-1]) | (offsets[1:] - ends[:-1] > MAX_GAP)
    apart[1:] |= (offsets[1:] < ends[:-1]) | marks[1:] | marks[:-1]
    if apart.all():
        return list(range(len(codes) + 1))
    bounds = [0]
    for position in range(1, len(codes)):
        if apart[position] or ends[position] - offsets[bounds[-1]] > limit:
            bounds.append(position)
    return [*bounds, len(codes)]
