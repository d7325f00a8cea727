"""Which bytes are asked for together: neighbouring parts of one file are one range."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

# Reading so many bytes that nobody wants costs less than another request.
MAX_GAP = 256 << 10


@dataclass(frozen=True)
class Range:
    """Bytes of one file, and the parts that lie in them."""

    file: str
    start: int
    length: int
    parts: pa.Table
    ends_file: bool
    alone: bool
    """Whether it was to be one part's only."""

    @property
    def spans(self) -> list[tuple[int, int]]:
        """What is asked for, each from one place to another."""
        return [(self.start, self.start + self.length)]

    @property
    def asked(self) -> int:
        """How many bytes to ask for: at a file's end one more, to see that there is none."""
        return self.length + self.ends_file


def join_ranges(
    parts: pa.Table, limit: int, alone: NDArray[np.bool_] | None = None
) -> Iterator[Range]:
    """The ranges that hold these parts, at most `limit` bytes each unless a part is larger.

    Files come in the order of their first part, the parts of a file in the order they lie in it.
    Those that are to be `alone` share their range with no other.

    >>> parts = pa.table({"file": ["a", "b", "a"], "offset": [0, 0, 8], "bytes": [8, 8, 8]})
    >>> from ffq_spark.format.manifest import with_file_ends
    >>> ranges = join_ranges(with_file_ends(parts), 16)
    >>> [(range.file, range.start, range.length) for range in ranges]
    [('a', 0, 16), ('b', 0, 8)]
    """
    if not parts.num_rows:
        return
    files = parts["file"].combine_chunks().dictionary_encode()
    codes = files.indices.to_numpy()
    offsets, sizes = parts["offset"].to_numpy(), parts["bytes"].to_numpy()
    single = np.zeros(len(codes), np.bool_) if alone is None else alone
    if len(files.dictionary) < len(codes):
        order = np.lexsort((offsets, codes))
        parts = parts.take(pa.array(order))
        codes, offsets, sizes, single = codes[order], offsets[order], sizes[order], single[order]
    for first, last in pairwise(_bounds(codes, offsets, sizes, single, limit)):
        start = int(offsets[first])
        length = int(offsets[last - 1] + sizes[last - 1]) - start
        file = files.dictionary[int(codes[first])].as_py()
        ends_file = parts["ends_file"][last - 1].as_py()
        own = parts.slice(first, last - first)
        yield Range(file, start, length, own, ends_file, bool(single[first]))


def _bounds(
    codes: NDArray[np.int32],
    offsets: NDArray[np.int64],
    sizes: NDArray[np.int64],
    single: NDArray[np.bool_],
    limit: int,
) -> list[int]:
    """Where ranges begin, and the end."""
    ends = offsets + sizes
    apart = np.ones(len(codes), np.bool_)
    apart[1:] = (codes[1:] != codes[:-1]) | (offsets[1:] - ends[:-1] > MAX_GAP)
    apart[1:] |= (offsets[1:] < ends[:-1]) | single[1:] | single[:-1]
    if apart.all():
        return list(range(len(codes) + 1))
    bounds = [0]
    for position in range(1, len(codes)):
        if apart[position] or ends[position] - offsets[bounds[-1]] > limit:
            bounds.append(position)
    return [*bounds, len(codes)]
