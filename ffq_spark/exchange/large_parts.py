"""Parts that are larger than what may be held: compared with the manifest, then read in pieces.

A part is read twice: once to compare its bytes with what was committed, once to give its batches
out. The second reading is compared too, so that a file that changes in between is an error. A batch
that is itself too large goes through local disk: it is in memory for a moment, and never while its
reader takes its time.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from ffq_spark.errors import CorruptPart
from ffq_spark.exchange.ranges import Range
from ffq_spark.exchange.reader import Part, RowShape, decode_batches, fetch_range, read_parts
from ffq_spark.format import payload
from ffq_spark.format.payload import Decoder
from ffq_spark.store import Store

PIECE_BYTES = 256 << 10

Loading = AbstractContextManager[Any]
"""What is held while a batch that is too large is in memory: a lock lets in one at a time."""


class PartFile(io.RawIOBase):
    """The bytes of one part, in order, a piece at a time."""

    def __init__(self, store: Store, part: Part) -> None:
        self._store = store
        self._part = part
        self._digest = xxhash.xxh3_64()
        self.position = 0

    def readable(self) -> bool:
        return True

    def piece(self, size: int = PIECE_BYTES) -> pa.Buffer:
        """The next bytes, none at the end; fewer than were committed is an error."""
        part, left = self._part, self._part["bytes"] - self.position
        size = min(size, left)
        if size <= 0:
            return pa.py_buffer(b"")
        start = part["offset"] + self.position
        data = fetch_range(self._store, part["file"], start, size, part.get("step"))
        if len(data) < size:
            found = self.position + len(data)
            raise CorruptPart(f"{found} bytes instead of {part['bytes']}", path=self.path)
        self._digest.update(data)
        self.position += size
        return data

    def readinto(self, target: object) -> int:
        view = memoryview(target).cast("B")  # type: ignore[arg-type]
        data = memoryview(self.piece(len(view))).cast("B")
        view[: len(data)] = data
        return len(data)

    @property
    def path(self) -> str:
        return self._store.url(self._part["file"])

    @property
    def digest(self) -> int:
        """The checksum of what was read so far."""
        return int(self._digest.intdigest())

    def check(self) -> None:
        """Read what is left, and compare all of it with what was committed."""
        part = self._part
        while len(self.piece()):
            pass
        if Range(part["file"], part["offset"], part["bytes"], pa.table({})).is_whole_file:
            beyond = part["bytes"]
            if len(fetch_range(self._store, part["file"], beyond, 1, part.get("step"))):
                raise CorruptPart(f"more bytes instead of {part['bytes']}", path=self.path)
        expected = part.get("checksum")
        if expected is not None and self.digest != expected:
            raise CorruptPart("checksum mismatch", path=self.path)


def read_bounded(
    store: Store,
    parts: pa.Table,
    schema: pa.Schema,
    *,
    credits: int,
    columns: Sequence[str] | None = None,
    metadata: bool = False,
    loading: Loading | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of these parts, verified in full, with never more than `credits` bytes held.

    The order of rows depends on the parts alone, so that a read can go on where another ended.
    """
    shape = RowShape(schema, columns, metadata=metadata)
    parts = _by_file(parts)
    large = parts["bytes"].to_numpy() > credits
    for start, end in pairwise(_bounds(large)):
        run = parts.slice(start, end - start)
        if not large[start]:
            yield from read_parts(
                store, run, schema, columns=columns, metadata=metadata, credits=credits
            )
            continue
        (part,) = run.to_pylist()
        batches = read_large_part(store, part, shape.decoder)
        yield from shape.rows(part, through_disk(batches, credits, loading or nullcontext()))


def through_disk(
    batches: Iterator[pa.RecordBatch], limit: int, loading: Loading
) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of about `limit` bytes at most.

    >>> batch = pa.record_batch({"a": list(range(8))})
    >>> [b.num_rows for b in through_disk(iter([batch, batch.slice(0, 1)]), 32, nullcontext())]
    [4, 4, 1]
    """
    while True:
        with loading:
            batch = next(batches, None)
            if batch is None:
                return
            spilled = _spilled(batch, limit) if batch.nbytes > limit else None
            if spilled is not None:
                del batch
        if spilled is None:
            yield batch
            continue
        with spilled, pa.ipc.open_stream(pa.PythonFile(spilled, "r")) as reader:
            yield from reader


def _spilled(batch: pa.RecordBatch, limit: int) -> BinaryIO:
    """A file without a name that holds a batch in pieces."""
    file = tempfile.TemporaryFile(prefix="ffq-")  # noqa: SIM115
    rows = max(1, batch.num_rows * limit // batch.nbytes)
    with pa.ipc.new_stream(pa.PythonFile(file, "w"), batch.schema) as writer:
        for start in range(0, batch.num_rows, rows):
            writer.write_batch(batch.slice(start, rows))
    file.seek(0)
    return file


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


def read_large_part(store: Store, part: Part, decoder: Decoder) -> Iterator[pa.RecordBatch]:
    """The batches of a part of any size, verified in full, of which one is held at a time."""
    PartFile(store, part).check()
    return decode_batches(_batches(store, part, decoder), part, store.url(part["file"]))


def _batches(store: Store, part: Part, decoder: Decoder) -> Iterator[pa.RecordBatch]:
    file = PartFile(store, part)
    head = PartFile(store, part).piece()
    buffered = io.BufferedReader(file, PIECE_BYTES)
    if payload.is_framed(head):
        yield from decoder.frames(buffered, part.get("chunks") or (), file.path)
    else:
        yield from decoder.stream(buffered, head, file.path)
    file.check()
