"""Comparing everything an exchange shows with everything it promised."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from ffq_spark.errors import CorruptPart, CorruptRecord, FfqError
from ffq_spark.exchange.attempts.stored import read_index
from ffq_spark.exchange.compute.row_partitions import check_placed
from ffq_spark.exchange.compute.sorting import check_sorted
from ffq_spark.exchange.read.column_ranges import check_directory
from ffq_spark.exchange.read.parts import Part, decode_part, fetch_part
from ffq_spark.exchange.scan.snapshot import READ_SCHEMA, Snapshot
from ffq_spark.format.paths import AttemptId
from ffq_spark.format.payload import Decoder
from ffq_spark.store import Store

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it was committed."""

    code: str
    path: str
    message: str


@dataclass(frozen=True)
class VerifyReport:
    """What was looked at, and what was wrong with it.

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
        return not self.findings


def verify_snapshot(snapshot: Snapshot, progress: Progress | None = None) -> VerifyReport:
    """Read every part in full: bytes, rows, checksums, places and order, and the indexes."""
    findings: list[Finding] = []
    parts = _listed_parts(snapshot, findings)
    orders = {step.step: step.body.sort_by for step in snapshot.steps}
    rows = size = 0
    for done, part in enumerate(parts.to_pylist(), start=1):
        findings += _findings(_check_part(snapshot, part, orders.get(part["step"], ())))
        rows += part["rows"]
        size += part["bytes"]
        if progress:
            progress(done, parts.num_rows)
    for id in sorted(_attempts(parts)):
        findings += _findings(_check_index(snapshot.store, id, parts))
    return VerifyReport(len(snapshot.steps), parts.num_rows, rows, size, tuple(findings))


def _listed_parts(snapshot: Snapshot, findings: list[Finding]) -> pa.Table:
    """The parts of all steps; a manifest that is damaged is a finding, the others still count."""
    if snapshot.raw is not None:
        return snapshot.parts()
    tables = [READ_SCHEMA.empty_table()]
    for step in snapshot.steps:
        try:
            tables.append(replace(snapshot, steps=(step,)).parts())
        except CorruptRecord as error:
            findings.append(_finding(error))
    return pa.concat_tables(tables)


def _findings(check: Iterator[None]) -> Iterator[Finding]:
    try:
        for _ in check:
            pass
    except FfqError as error:
        yield _finding(error)


def _finding(error: FfqError) -> Finding:
    return Finding(error.code, error.path or "", error.message)


def _check_part(snapshot: Snapshot, part: Part, order: Sequence[str]) -> Iterator[None]:
    exchange = snapshot.exchange
    path = snapshot.store.url(part["file"])
    data = fetch_part(snapshot.store, part)
    check_directory(exchange.schema, part, data, path)
    batches = decode_part(Decoder(exchange.schema), part, data, path)
    for batch in check_sorted(batches, order, path):
        check_placed(exchange, batch, part["reduce"], path)
        yield


def _attempts(parts: pa.Table) -> set[AttemptId]:
    rows = parts.select(["query", "stage", "map_task", "attempt"]).to_pylist()
    return {AttemptId(**row) for row in rows}


def _check_index(store: Store, id: AttemptId, parts: pa.Table) -> Iterator[None]:
    index = read_index(store, id)
    listed = {(e.reduce, e.bytes, e.rows) for e in index.entries} if index else set()
    columns = [parts[name].to_numpy() for name in ("query", "stage", "map_task", "attempt")]
    own = np.logical_and.reduce([c == value for c, value in zip(columns, id, strict=True)])
    rows = parts.filter(pa.array(own)).select(["reduce", "bytes", "rows"]).to_pylist()
    expected = {(row["reduce"], row["bytes"], row["rows"]) for row in rows}
    # A filter may have left parts out, so the index may list more.
    if not expected <= listed:
        raise CorruptPart(
            "the index does not list the committed parts", path=store.url(id.directory)
        )
    yield
