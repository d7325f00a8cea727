"""Checkpoints of the log: the records and the parts of many steps in one file.

A checkpoint holds 64 steps, a larger one the 512 of eight such, then 4,096 and so on: a row is
written again once for each size, and a reader opens few files however long the log is. They are
made of step records and manifests and only ever stand in for them: one that is absent or damaged
costs time, never rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, groupby
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ffq_spark.errors import CorruptRecord
from ffq_spark.format import layout, manifest
from ffq_spark.format.manifest import PART_FIELDS
from ffq_spark.format.payload import checksum
from ffq_spark.format.records import StepRecord
from ffq_spark.store import Store

FIRST_SIZE = 64
GROWTH = 8
MAX_PARTS = 1 << 20

Stored = tuple[bytes, StepRecord]
"""A step's record as its file holds it, with what a later version may have added, and as read."""

PARTS_SCHEMA = pa.schema([("step", pa.int64()), ("query", pa.int64()), *PART_FIELDS])
_ROWS = pa.schema([("step", pa.int64()), ("base", pa.int64()), ("record", pa.binary())])
_COLUMNS = (*_ROWS.names, "parts")
_LAYOUT = {b"ffq_checkpoint": b"1"}
_CHECKSUM_BYTES = 8
_LARGE = 1 << 20


class Span(NamedTuple):
    """Neighbouring steps that lie in one file: a step alone, or 64, 512, 4,096, … of them."""

    size: int
    last: int

    @property
    def first(self) -> int:
        return self.last - self.size + 1

    @property
    def path(self) -> str:
        """A step's own record, or a checkpoint."""
        size, last = self
        return layout.step(last) if size == 1 else layout.checkpoint(size, last)

    def smaller(self, first: int) -> Iterator[Span]:
        """What holds the same steps in smaller files, as far as they are wanted."""
        return cover(max(first, self.first), self.last, self.size - 1)


def cover(first: int, last: int, largest: int | None = None) -> Iterator[Span]:
    """The fewest spans that hold these steps; of each, most steps are wanted.

    >>> [(span.first, span.last) for span in cover(63, 194)]
    [(63, 63), (64, 64), (65, 128), (129, 192), (193, 193), (194, 194)]
    >>> [(span.first, span.last) for span in cover(63, 5000)][:2]
    [(1, 4096), (4097, 4608)]
    """
    sizes = [1, *_sizes(last if largest is None else largest)]
    while first <= last:
        around = (Span(size, -(-first // size) * size) for size in reversed(sizes))
        # None that ends later: it may not exist yet.
        span = next(s for s in around if s.last <= last and s.size < 2 * (s.last - first + 1))
        yield span
        first = span.last + 1


def ending_at(last: int) -> list[Span]:
    """The checkpoints that a step completes, the smallest first.

    >>> [span.size for span in ending_at(8192)], ending_at(100)
    ([64, 512, 4096], [])
    """
    return [Span(size, last) for size in _sizes(last) if last % size == 0]


def _sizes(limit: int) -> Iterator[int]:
    size = FIRST_SIZE
    while size <= limit:
        yield size
        size *= GROWTH


def step_parts(
    step: StepRecord, data: bytes | None, path: str, *, statistics: bool = True
) -> pa.Table:
    """The parts of a step by its manifest, which must be the one that the step remembers."""
    body = step.body
    if data is None:
        raise CorruptRecord("the manifest is missing", path=path)
    if len(data) != body.manifest_bytes or manifest.digest(data) != body.manifest_checksum:
        raise CorruptRecord("the manifest is not the one that was committed", path=path)
    table = manifest.decode(data, path, statistics=statistics)
    leading = [
        pa.repeat(pa.scalar(value, pa.int64()), table.num_rows) for value in (step.step, body.query)
    ]
    return pa.table(
        [*leading, *table.columns], schema=pa.schema([*list(PARTS_SCHEMA)[:2], *table.schema])
    )


@dataclass(frozen=True)
class Checkpoint:
    """Neighbouring steps, one row each: `step`, `base`, `record` and, where known, `parts`.

    Records are most of a file's bytes, and plans of long logs look at few of them. So the table of
    a checkpoint that was read is without them until they are asked for: `content` has them.
    """

    table: pa.Table
    path: str = ""
    content: pa.Buffer | None = None

    @classmethod
    def of(cls, steps: Sequence[Stored], parts: Sequence[pa.Table | None]) -> Checkpoint:
        """Steps by their records, and their parts where they are known."""
        rows = [{"step": s.step, "base": s.base, "record": data} for data, s in steps]
        counts = [None if table is None else table.num_rows for table in parts]
        return _assemble(
            pa.Table.from_pylist(rows, schema=_ROWS),
            pa.array(counts, pa.int64()),
            [table for table in parts if table is not None],
        )

    @classmethod
    def join(cls, checkpoints: Sequence[Checkpoint]) -> Checkpoint:
        """Neighbouring checkpoints as one."""
        counts = [
            pc.list_value_length(checkpoint.table["parts"].combine_chunks())
            for checkpoint in checkpoints
        ]
        return _assemble(
            pa.concat_tables([checkpoint.rows() for checkpoint in checkpoints]),
            pa.concat_arrays(counts).cast(pa.int64()),
            [checkpoint.parts() for checkpoint in checkpoints],
        )

    @classmethod
    def decode(cls, data: bytes, span: Span, path: str) -> Checkpoint:
        """Read a checkpoint and check that it is whole, and of these steps."""
        content = pa.py_buffer(data)[: max(len(data) - _CHECKSUM_BYTES, 0)]
        if checksum(content) != int.from_bytes(data[-_CHECKSUM_BYTES:], "little"):
            raise CorruptRecord("checksum mismatch", path=path)
        try:
            table = _read(content, [name for name in _COLUMNS if name != "record"])
        except (pa.ArrowException, OSError) as error:
            raise CorruptRecord(f"not a readable checkpoint: {error}", path=path) from error
        if table.schema.metadata != _LAYOUT:
            raise CorruptRecord("a checkpoint of another version", path=path)
        if not np.array_equal(table["step"].to_numpy(), np.arange(span.first, span.last + 1)):
            raise CorruptRecord(f"no checkpoint of steps {span.first} to {span.last}", path=path)
        return cls(table, path, content)

    def encode(self) -> bytes:
        """An Arrow IPC stream, and behind it its checksum."""
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_stream(sink, self.table.schema, options=options) as writer:
            writer.write_table(self.table)
        content = sink.getvalue()
        return bytes(content) + checksum(content).to_bytes(_CHECKSUM_BYTES, "little")

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def record(self, position: int) -> StepRecord:
        """One step's record."""
        return StepRecord.decode(self._records[position].as_py(), self.path)

    @cached_property
    def _records(self) -> pa.ChunkedArray:
        if self.content is None:
            return self.table["record"]
        stored = _read(self.content, ["step", "record"])
        first = stored["step"][0]
        return stored["record"].take(pc.subtract(self.table["step"], first))

    def rows(self) -> pa.Table:
        """The steps without their parts."""
        columns = [self.table["step"], self.table["base"], self._records]
        return pa.table(columns, schema=_ROWS)

    @property
    def numbers(self) -> range:
        first = self.table["step"][0].as_py()
        return range(first, first + len(self))

    def since(self, first: int) -> Checkpoint:
        """Without the steps before one."""
        skipped = first - self.numbers[0]
        return replace(self, table=self.table.slice(skipped)) if skipped > 0 else self

    def bases(self) -> NDArray[np.int64]:
        """Of each step the first that is visible together with it."""
        values: NDArray[np.int64] = self.table["base"].to_numpy()
        return values

    def parts(self) -> pa.Table:
        """The parts of all steps whose parts are known, with the statistics of each."""
        return pa.Table.from_struct_array(self.table["parts"].combine_chunks().flatten())

    @property
    def num_parts(self) -> int:
        """How many parts are known."""
        return len(self.table["parts"].combine_chunks().flatten())

    def split(self, doubtful: Collection[int]) -> tuple[Checkpoint, list[StepRecord]]:
        """The steps whose parts are known, and those whose manifests must be asked."""
        parts = self.table["parts"]
        if not doubtful and not parts.null_count:
            return self, []
        unknown = parts.is_null().to_numpy() | [number in doubtful for number in self.numbers]
        others = [self.record(position) for position in np.flatnonzero(unknown).tolist()]
        return replace(self, table=self.table.filter(pa.array(~unknown))), others


def _read(content: pa.Buffer, columns: Sequence[str]) -> pa.Table:
    fields = [_COLUMNS.index(name) for name in columns]
    # To wake other threads takes longer than a small file does.
    options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=len(content) > _LARGE)
    return pa.ipc.open_stream(content, options=options).read_all()


def condensed(store: Store, pieces: Sequence[Stored | Checkpoint]) -> Checkpoint | None:
    """Neighbouring steps as one checkpoint; None if its size would cost more than it saves."""
    parts = (p.num_parts if isinstance(p, Checkpoint) else p[1].body.parts for p in pieces)
    if sum(parts) > MAX_PARTS:
        return None
    checkpoints: list[Checkpoint] = []
    for is_loose, neighbours in groupby(pieces, key=lambda piece: isinstance(piece, tuple)):
        if is_loose:
            loose = [piece for piece in neighbours if isinstance(piece, tuple)]
            checkpoints.append(Checkpoint.of(loose, _known_parts(store, loose)))
        else:
            checkpoints += (piece for piece in neighbours if isinstance(piece, Checkpoint))
    return Checkpoint.join(checkpoints)


def _known_parts(store: Store, steps: Sequence[Stored]) -> list[pa.Table | None]:
    manifests = store.read_many([step.body.manifest for _, step in steps])
    return [
        _parts_unless_damaged(step, data) for (_, step), data in zip(steps, manifests, strict=True)
    ]


def _parts_unless_damaged(step: StepRecord, data: bytes | None) -> pa.Table | None:
    try:
        return step_parts(step, data, step.body.manifest)
    except CorruptRecord:
        # Expired, or damaged: readers are to find that out for themselves.
        return None


def _assemble(rows: pa.Table, counts: pa.Array, parts: Sequence[pa.Table]) -> Checkpoint:
    tables = list(_with_equal_statistics([PARTS_SCHEMA.empty_table(), *parts]))
    values = pa.concat_tables(tables).combine_chunks().to_struct_array().combine_chunks()
    ends = accumulate(count or 0 for count in counts.to_pylist())
    offsets = pa.array([0, *ends], pa.int32())
    column = pa.ListArray.from_arrays(offsets, values, mask=counts.is_null())
    table = rows.append_column("parts", column).replace_schema_metadata(_LAYOUT)
    return Checkpoint(table.combine_chunks())


def _with_equal_statistics(tables: Sequence[pa.Table]) -> Iterator[pa.Table]:
    """Each step chose its own columns for statistics: where it has none of a column, null."""
    fields = {
        field.name: field
        for table in tables
        if "stats" in table.schema.names
        for field in table.schema.field("stats").type
    }
    wanted = [fields[name] for name in sorted(fields)]
    for table in tables:
        plain = table.select(PARTS_SCHEMA.names)
        if wanted:
            yield plain.append_column("stats", _statistics(table, wanted))
        else:
            yield plain


def _statistics(table: pa.Table, wanted: Iterable[pa.Field]) -> pa.StructArray:
    there = table["stats"].combine_chunks() if "stats" in table.schema.names else None
    known = set() if there is None else {field.name for field in there.type}
    columns = [
        pc.struct_field(there, field.name)
        if field.name in known
        else pa.nulls(table.num_rows, field.type)
        for field in wanted
    ]
    return pa.StructArray.from_arrays(columns, fields=list(wanted))
