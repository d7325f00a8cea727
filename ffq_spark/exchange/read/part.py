"""One part of a snapshot: its file, its offset and size, and the committed checksums."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any, NamedTuple

import pyarrow as pa

from ffq_spark.errors import CorruptPart
from ffq_spark.format.index import Chunk

_ROWS_AT_ONCE = 4096


class Part(NamedTuple):
    """A part. Fields that a plan leaves out, or that a manifest lacks, keep their defaults."""

    file: str
    offset: int
    bytes: int
    rows: int = 0
    batches: int = 0
    reduce: int = 0
    ends_file: bool = False
    """Whether the part is the last of its file, so that no byte may follow it."""
    checksum: int | None = None
    tail_bytes: int = 0
    tail_checksum: int = 0
    chunks: tuple[Chunk, ...] = ()
    step: int | None = None
    query: int = 0
    stage: int = 0
    map_task: int = 0
    attempt: int = 0
    modulus: int = 0
    """A row lies in this part if pmod(hash of its keys, modulus) is `reduce`."""


def list_parts(table: pa.Table) -> Iterator[Part]:
    """Return the rows of a table of parts.

    Rows are converted in blocks, column by column, which takes a third of the time of `to_pylist`.

    >>> table = pa.table({"file": ["a"], "offset": [8], "bytes": [16], "checksum": [None]})
    >>> [part] = list_parts(table)
    >>> part.file, part.offset, part.checksum, part.step
    ('a', 8, None, None)
    """
    for batch in table.to_batches(max_chunksize=_ROWS_AT_ONCE):
        yield from map(Part, *(_values(batch, name) for name in Part._fields))


def _values(batch: pa.RecordBatch, name: str) -> Any:
    if name not in batch.schema.names:
        return repeat(Part._field_defaults[name])
    column = batch.column(name)
    if name == "chunks":
        return [tuple(Chunk(**c) for c in chunks or ()) for chunks in column.to_pylist()]
    # NumPy has no integer that is null.
    return column.to_pylist() if column.null_count else column.to_numpy(False).tolist()


def length_to_request(length: int, *, ends_file: bool) -> int:
    """Return how many bytes to request: at the end of a file one more, to notice that it grew.

    >>> length_to_request(8, ends_file=True), length_to_request(8, ends_file=False)
    (9, 8)
    """
    return length + 1 if ends_file else length


def size_error(part: Part, path: str, *, is_short: bool) -> CorruptPart:
    """Return the error of a part whose file has fewer or more bytes than were committed."""
    if is_short:
        message = f"the file ends inside the part: fewer than the committed {part.bytes} bytes"
    else:
        message = "the file is longer than the committed parts"
    return CorruptPart(message, path=path)
