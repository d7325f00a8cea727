"""Verification: compare everything that an exchange shows with what was committed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa

from ffq_spark.errors import CorruptPart, CorruptRecord, FfqError
from ffq_spark.exchange.attempts.stored import read_index
from ffq_spark.exchange.compute.row_partitions import check_placed
from ffq_spark.exchange.compute.sorting import check_sorted
from ffq_spark.exchange.read.column_ranges import check_directory
from ffq_spark.exchange.read.decode import decode_part, validated
from ffq_spark.exchange.read.fetch import fetch_part
from ffq_spark.exchange.read.part import Part, list_parts
from ffq_spark.exchange.scan.pruned_parts import READ_SCHEMA
from ffq_spark.exchange.scan.snapshot import Snapshot
from ffq_spark.format.paths import AttemptId
from ffq_spark.format.payload import Decoder
from ffq_spark.store import Store

Progress = Callable[[int, int], None]
"""A function that takes the number of parts verified so far and the number of all parts."""

_Sizes = tuple[int, int, int]
"""The partition, bytes and rows of a part."""


@dataclass(frozen=True)
class Finding:
    """One file that differs from what was committed: the error's code, path and message."""

    code: str
    path: str
    message: str


@dataclass(frozen=True)
class VerifyReport:
    """The amount of data that was verified, and its damage.

    >>> VerifyReport(steps=1, parts=2, rows=3, bytes=4).ok
    True
    """

    steps: int
    parts: int
    rows: int
    bytes: int
    findings: tuple[Finding, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """Return whether no file is damaged."""
        return not self.findings


def verify_snapshot(snapshot: Snapshot, progress: Progress | None = None) -> VerifyReport:
    """Read every part in full and check its bytes, rows, checksums, partition, order and index."""
    findings: list[Finding] = []
    parts = list(list_parts(_listed_parts(snapshot, findings)))
    orders = {step.step: step.body.sort_by for step in snapshot.steps}
    sizes_of: dict[AttemptId, set[_Sizes]] = defaultdict(set)
    for done, part in enumerate(parts, start=1):
        with _recorded_in(findings):
            _check_part(snapshot, part, orders.get(part.step or 0, ()))
        id = AttemptId(part.query, part.stage, part.map_task, part.attempt)
        sizes_of[id].add(_sizes(part))
        if progress:
            progress(done, len(parts))
    for id in sorted(sizes_of):
        with _recorded_in(findings):
            _check_index(snapshot.store, id, sizes_of[id])
    rows, size = sum(part.rows for part in parts), sum(part.bytes for part in parts)
    return VerifyReport(len(snapshot.steps), len(parts), rows, size, tuple(findings))


def _listed_parts(snapshot: Snapshot, findings: list[Finding]) -> pa.Table:
    """List the parts of all steps; record a damaged manifest as a finding and carry on."""
    if snapshot.raw is not None:
        return snapshot.parts()
    tables = [READ_SCHEMA.empty_table()]
    for step in snapshot.steps:
        # An expired step is no damage: its error ends the verification.
        with _recorded_in(findings, CorruptRecord):
            tables.append(replace(snapshot, steps=(step,)).parts())
    return pa.concat_tables(tables)


@contextmanager
def _recorded_in(findings: list[Finding], kind: type[FfqError] = FfqError) -> Iterator[None]:
    """Add an error of the block to the findings and carry on."""
    try:
        yield
    except kind as error:
        findings.append(Finding(error.code, error.path or "", error.message))


def _check_part(snapshot: Snapshot, part: Part, order: Sequence[str]) -> None:
    """Raise the first error in a part's bytes, column directory, batches, order and placement.

    A checksum proves that the bytes are those that were committed, not that they are valid.
    """
    exchange = snapshot.exchange
    placed = replace(exchange, partitions=part.modulus or exchange.partitions)
    path = snapshot.store.url(part.file)
    data = fetch_part(snapshot.store, part)
    check_directory(exchange.schema, part, data, path)
    batches = validated(decode_part(Decoder(exchange.schema), part, data, path), path, full=True)
    for batch in check_sorted(batches, order, path):
        check_placed(placed, batch, part.reduce, path)


def _sizes(part: Part) -> _Sizes:
    return part.reduce, part.bytes, part.rows


def _check_index(store: Store, id: AttemptId, committed: Set[_Sizes]) -> None:
    """Raise CorruptPart unless an attempt's index lists its committed parts."""
    index = read_index(store, id)
    listed = {(e.reduce, e.bytes, e.rows) for e in index.entries} if index else set()
    # The snapshot may be limited to some partitions, so the index may list more parts.
    if not committed <= listed:
        message = "the index does not list the committed parts"
        raise CorruptPart(message, path=store.url(id.directory))
