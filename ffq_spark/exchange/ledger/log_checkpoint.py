"""Log checkpoints: the records and the parts of many steps in one file.

A log checkpoint holds 64 steps, or 512, 4,096, …: each size eight times the one before. Each row is
written again once for each size, and a reader opens few files even for a long log. Log checkpoints
are made from step records and manifests, which they only save reading: one that is missing or
damaged costs time, never rows.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ffq_spark.errors import CorruptRecord
from ffq_spark.exchange.ledger.log_spans import Span
from ffq_spark.exchange.ledger.step_parts import PARTS_SCHEMA, join_parts, step_parts
from ffq_spark.format.manifest import mark_statistics, trusted_statistics
from ffq_spark.format.payload import checksum
from ffq_spark.format.records import StepRecord
from ffq_spark.store import Store

MAX_PARTS = 1 << 20

Stored = tuple[bytes, StepRecord]
"""The bytes of a step's record, with fields that a later version may have added; the record."""

_HEADER = b"ffq_checkpoint"
_VERSION = 4
_NUMBER_BYTES = 8
_LARGE = 1 << 20


@dataclass(frozen=True)
class LogCheckpoint:
    """Neighbouring steps with their records, their parts, and the base of each step.

    Plans need the parts, but few records or none. Records and statistics are most of a file, so
    they stay encoded in `content` until they are used.
    """

    numbers: range
    bases: NDArray[np.int64]
    unknown: frozenset[int]
    """The steps whose manifests could not be read, so that their parts are missing here."""
    partitions: frozenset[int]
    """The numbers of partitions of all steps with rows."""
    plain_parts: pa.Table
    stored_records: pa.Array | None = None
    content: pa.Buffer | None = None
    path: str = ""

    @classmethod
    def build(cls, store: Store, pieces: Sequence[Stored | LogCheckpoint]) -> LogCheckpoint | None:
        """Build the log checkpoint of neighbouring steps, or None for more than MAX_PARTS parts.

        A larger one would cost more than it saves.
        """
        parts = (p.num_parts if isinstance(p, LogCheckpoint) else p[1].body.parts for p in pieces)
        if sum(parts) > MAX_PARTS:
            return None
        checkpoints: list[LogCheckpoint] = []
        for is_single, neighbours in groupby(pieces, key=lambda piece: isinstance(piece, tuple)):
            if is_single:
                steps = [piece for piece in neighbours if isinstance(piece, tuple)]
                checkpoints.append(cls.of(steps, _known_parts(store, steps)))
            else:
                checkpoints += (piece for piece in neighbours if isinstance(piece, LogCheckpoint))
        return cls.join(checkpoints)

    @classmethod
    def of(cls, steps: Sequence[Stored], parts: Sequence[pa.Table | None]) -> LogCheckpoint:
        """Build the log checkpoint of steps and their parts; None stands for unknown parts."""
        pairs = zip(steps, parts, strict=True)
        return cls(
            range(steps[0][1].step, steps[-1][1].step + 1),
            np.array([step.base for _, step in steps], np.int64),
            frozenset(step.step for (_, step), table in pairs if table is None),
            frozenset(step.body.partitions for _, step in steps if step.body.parts),
            join_parts([table for table in parts if table is not None]),
            pa.array([data for data, _ in steps], pa.binary()),
        )

    @classmethod
    def join(cls, checkpoints: Sequence[LogCheckpoint]) -> LogCheckpoint:
        """Join neighbouring log checkpoints."""
        return cls(
            range(checkpoints[0].numbers.start, checkpoints[-1].numbers.stop),
            np.concatenate([checkpoint.bases for checkpoint in checkpoints]),
            frozenset().union(*(checkpoint.unknown for checkpoint in checkpoints)),
            frozenset().union(*(checkpoint.partitions for checkpoint in checkpoints)),
            join_parts([checkpoint.parts() for checkpoint in checkpoints]),
            pa.concat_arrays([checkpoint.records for checkpoint in checkpoints]),
        )

    @classmethod
    def decode(cls, data: bytes | pa.Buffer, span: Span, path: str) -> LogCheckpoint:
        """Decode a log checkpoint, and check that it is complete and holds the steps of a span."""
        content = pa.py_buffer(data)[: max(len(data) - _NUMBER_BYTES, 0)]
        if checksum(content) != _number(data):
            raise CorruptRecord("checksum mismatch", path=path)
        try:
            parts = _read(content, range(len(PARTS_SCHEMA)))
            header = json.loads((parts.schema.metadata or {}).get(_HEADER, b"{}"))
            if header.get("version") != _VERSION or not parts.schema.equals(PARTS_SCHEMA):
                raise CorruptRecord("the log checkpoint has another version", path=path)
            if (header["first"], header["last"]) != (span.first, span.last):
                message = f"the log checkpoint is not of steps {span.first} to {span.last}"
                raise CorruptRecord(message, path=path)
            bases, counts = np.array(header["bases"], np.int64).T
            return cls(
                range(span.first, span.last + 1),
                np.repeat(bases, counts),
                frozenset(header["unknown"]),
                frozenset(header["partitions"]),
                parts.replace_schema_metadata(),
                content=content,
                path=path,
            )
        except (pa.ArrowException, OSError, ValueError, LookupError, TypeError) as error:
            raise CorruptRecord(f"the log checkpoint cannot be read: {error}", path=path) from error

    def encode(self) -> bytes:
        """Encode two Arrow IPC streams, parts and records, the offset of the second, a checksum."""
        header = {
            "version": _VERSION,
            "first": self.numbers[0],
            "last": self.numbers[-1],
            "bases": [(base, len(list(run))) for base, run in groupby(self.bases.tolist())],
            "unknown": sorted(self.unknown),
            "partitions": sorted(self.partitions),
        }
        parts = self.parts().replace_schema_metadata({_HEADER: json.dumps(header)})
        parts = mark_statistics(parts)
        sink = pa.BufferOutputStream()
        _write(sink, parts, "lz4")
        start = sink.tell()
        _write(sink, pa.table({"record": self.records}), "zstd")
        sink.write(start.to_bytes(_NUMBER_BYTES, "little"))
        content = sink.getvalue()
        return bytes(content) + checksum(content).to_bytes(_NUMBER_BYTES, "little")

    def __len__(self) -> int:
        return len(self.numbers)

    def record(self, position: int) -> StepRecord:
        """Decode the record of one step."""
        return StepRecord.decode(self.records[position].as_py(), self.path)

    @cached_property
    def records(self) -> pa.Array:
        """The bytes of the steps' records, as their own files hold them."""
        if self.content is None:
            return self.stored_records
        start = _number(self.content)
        return _read(self.content[start:])["record"].combine_chunks()[-len(self) :]

    def since(self, first: int) -> LogCheckpoint:
        """Return this log checkpoint without the steps before `first`."""
        skipped = first - self.numbers[0]
        if skipped <= 0:
            return self
        return replace(
            self,
            numbers=self.numbers[skipped:],
            bases=self.bases[skipped:],
            unknown=frozenset(number for number in self.unknown if number >= first),
            plain_parts=_since(self.plain_parts, first),
        )

    def parts(self, *, statistics: bool = True) -> pa.Table:
        """Return the parts of all steps whose parts are known, ordered by step."""
        if self.content is None or not statistics:
            return self.plain_parts
        parts = trusted_statistics(_read(self.content)).replace_schema_metadata()
        return _since(parts, self.numbers[0])

    @property
    def num_parts(self) -> int:
        """Number of known parts."""
        return int(self.plain_parts.num_rows)

    def known_parts(
        self, doubtful: Collection[int], *, statistics: bool
    ) -> tuple[pa.Table, list[StepRecord]]:
        """Return the parts of the steps that are certain, and the other steps.

        The manifests of unknown and `doubtful` steps must be read.
        """
        asked = self.unknown.union(number for number in doubtful if number in self.numbers)
        parts = self.parts(statistics=statistics)
        if asked:
            parts = parts.filter(np.isin(parts["step"].to_numpy(), list(asked), invert=True))
        return parts, [self.record(number - self.numbers[0]) for number in sorted(asked)]


def _since(parts: pa.Table, first: int) -> pa.Table:
    return parts.slice(np.searchsorted(parts["step"].to_numpy(), first))


def _number(data: bytes | pa.Buffer) -> int:
    """Decode the number in the last bytes."""
    return int.from_bytes(data[-_NUMBER_BYTES:], "little")


def _read(content: pa.Buffer, fields: Iterable[int] | None = None) -> pa.Table:
    # Waking other threads takes longer than decoding a small file.
    options = pa.ipc.IpcReadOptions(
        included_fields=None if fields is None else list(fields),
        use_threads=len(content) > _LARGE,
    )
    return pa.ipc.open_stream(content, options=options).read_all()


def _write(sink: pa.NativeFile, table: pa.Table, compression: str) -> None:
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)


def _known_parts(store: Store, steps: Sequence[Stored]) -> list[pa.Table | None]:
    manifests = store.read_large([step.body.manifest for _, step in steps])
    return [
        _parts_unless_damaged(step, data) for (_, step), data in zip(steps, manifests, strict=True)
    ]


def _parts_unless_damaged(step: StepRecord, data: pa.Buffer | None) -> pa.Table | None:
    try:
        return step_parts(step, data, step.body.manifest)
    except CorruptRecord:
        # The manifest has expired or is damaged. Readers report that when they need it.
        return None
