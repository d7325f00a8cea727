"""Which bytes are asked for together: neighbouring parts of one file are one range."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ffq_spark.format import layout

# Reading so many bytes that nobody wants costs less than another request.
MAX_GAP = 256 << 10


@dataclass(frozen=True)
class Range:
    """Bytes of one file, and the parts that lie in them."""

    file: str
    start: int
    length: int
    parts: pa.Table

    @property
    def is_whole_file(self) -> bool:
        """Whether the range must be all of its file: a part that has a file to itself."""
        return self.start == 0 and layout.parse_part(self.file.rpartition("/")[2]) is not None


def join_ranges(parts: pa.Table, limit: int) -> Iterator[Range]:
    """The ranges that hold these parts, at most `limit` bytes each unless a part is larger.

    Files come in the order of their first part, the parts of a file in the order they lie in it.

    >>> parts = pa.table({"file": ["a", "b", "a"], "offset": [0, 0, 8], "bytes": [8, 8, 8]})
    >>> [(range.file, range.start, range.length) for range in join_ranges(parts, 16)]
    [('a', 0, 16), ('b', 0, 8)]
    """
    if not parts.num_rows:
        return
    files = parts["file"].combine_chunks().dictionary_encode()
    codes = files.indices.to_numpy()
    offsets, sizes = parts["offset"].to_numpy(), parts["bytes"].to_numpy()
    if len(files.dictionary) < len(codes):
        order = np.lexsort((offsets, codes))
        parts = parts.take(pa.array(order))
        codes, offsets, sizes = codes[order], offsets[order], sizes[order]
    for first, last in pairwise(_bounds(codes, offsets, sizes, limit)):
        start = int(offsets[first])
        length = int(offsets[last - 1] + sizes[last - 1]) - start
        file = files.dictionary[int(codes[first])].as_py()
        yield Range(file, start, length, parts.slice(first, last - first))


def _bounds(
    codes: NDArray[np.int32], offsets: NDArray[np.int64], sizes: NDArray[np.int64], limit: int
) -> list[int]:
    """Where ranges begin, and the end."""
    ends = offsets + sizes
    apart = np.ones(len(codes), np.bool_)
    apart[1:] = (codes[1:] != codes[:-1]) | (offsets[1:] - ends[:-1] > MAX_GAP)
    apart[1:] |= offsets[1:] < ends[:-1]
    if apart.all():
        return list(range(len(codes) + 1))
    bounds = [0]
    for position in range(1, len(codes)):
        if apart[position] or ends[position] - offsets[bounds[-1]] > limit:
            bounds.append(position)
    return [*bounds, len(codes)]
