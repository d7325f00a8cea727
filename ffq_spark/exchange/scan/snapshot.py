"""Decide which steps and parts a read sees; a snapshot never changes afterwards."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ffq_spark.errors import (
    BadOption,
    CorruptRecord,
    ExchangeNotFound,
    PartitionNotFound,
    QueryNotFound,
    Unsupported,
)
from ffq_spark.exchange.attempts import stored
from ffq_spark.exchange.attempts.resolution import StageAttempts
from ffq_spark.exchange.compute.pruning import Predicate, matching_partitions, may_match
from ffq_spark.exchange.ledger.claims import claimed_step
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.ledger.log_checkpoint import LogCheckpoint
from ffq_spark.exchange.ledger.step_log import StepLog, Steps
from ffq_spark.exchange.ledger.step_parts import PARTS_SCHEMA, step_parts
from ffq_spark.exchange.read.part import list_parts
from ffq_spark.exchange.read.part_schema import part_schema
from ffq_spark.format import paths
from ffq_spark.format.manifest import ENDS_FILE, with_file_ends
from ffq_spark.format.records import ExchangeRecord, StepRecord
from ffq_spark.options import ReadOptions
from ffq_spark.store import Store

READ_SCHEMA = PARTS_SCHEMA.append(ENDS_FILE)
"""The columns of the parts that a read plans with."""

_FROM_NEWEST = ("", "latest", "all")
# Numbers of steps have at most 63 bits.
_STEPS = re.compile(r"([0-9]{1,18})(?:\.\.([0-9]{1,18}))?")


@dataclass(frozen=True)
class Snapshot:
    """The steps of an exchange that one read sees, or one query's output as its indexes list it."""

    store: Store
    exchange: ExchangeRecord
    steps: Sequence[StepRecord]
    raw: pa.Table | None = None
    newest: int | None = None
    """The newest step, where the choice of steps depended on it."""
    current: bool = False
    """Whether these steps are visible now, so that retention keeps their data."""

    def parts(
        self,
        predicates: Sequence[Predicate] = (),
        partitions: frozenset[int] | None = None,
    ) -> pa.Table:
        """List the parts that can hold matching rows, by partition, then step, then map task."""
        allowed = self._allowed(predicates, partitions) if predicates or partitions else partitions
        if self.raw is not None:
            return self.raw if allowed is None else _in_partitions(self.raw, allowed)
        tables = [_pruned(table, predicates, allowed) for table in self._tables(bool(predicates))]
        # A single table is not copied.
        table = pa.concat_tables(tables or [READ_SCHEMA.empty_table()]).combine_chunks()
        return table if len(self.steps) == 1 else _by_partition(table)

    @property
    def num_parts(self) -> int:
        """The number of parts before pruning."""
        if self.raw is not None:
            return int(self.raw.num_rows)
        pieces = self.steps.pieces if isinstance(self.steps, Steps) else tuple(self.steps)
        return sum(p.num_parts if isinstance(p, LogCheckpoint) else p.body.parts for p in pieces)

    def part_tables(self, partitions: frozenset[int] | None = None) -> Iterator[pa.Table]:
        """List all parts of some partitions with statistics, which may differ between tables."""
        tables = self._tables(statistics=True)
        allowed = self._allowed((), partitions)
        return tables if allowed is None else (_in_partitions(t, allowed) for t in tables)

    def _tables(self, statistics: bool) -> Iterator[pa.Table]:
        """Read the parts of all steps, a table for each log checkpoint and each other step."""
        pieces = self.steps.pieces if isinstance(self.steps, Steps) else tuple(self.steps)
        checkpoints = [piece for piece in pieces if isinstance(piece, LogCheckpoint)]
        loose = [piece for piece in pieces if not isinstance(piece, LogCheckpoint)]
        # A log checkpoint outlives the data of its steps. For steps that may have expired, read
        # the manifest: if it exists, so does the data.
        doubtful = StepLog(self.store).expired() if checkpoints and not self.current else set()
        for checkpoint in checkpoints:
            known, others = checkpoint.known_parts(doubtful, statistics=statistics)
            loose += others
            yield known
        manifests = self.store.read_large([step.body.manifest for step in loose])
        for step, data in zip(loose, manifests, strict=True):
            try:
                path = self.store.url(step.body.manifest)
                yield step_parts(step, data, path, statistics=statistics)
            except CorruptRecord:
                StepLog(self.store).refuse_expired(step.step)
                raise

    def _allowed(
        self, predicates: Sequence[Predicate], partitions: frozenset[int] | None
    ) -> frozenset[int] | None:
        if partitions is not None and max(partitions) >= self.exchange.partitions:
            known = f"the exchange has partitions 0 to {self.exchange.partitions - 1}"
            message = f"there is no partition {max(partitions)}: {known}"
            raise PartitionNotFound(message, option="partitions")
        matching = matching_partitions(self.exchange, predicates)
        if matching is None or partitions is None:
            return partitions if matching is None else matching
        return matching & partitions


def _by_partition(table: pa.Table) -> pa.Table:
    """Sort by partition, then step; the parts of a step are sorted by map task already."""
    steps, reduces = table["step"].to_numpy(), table["reduce"].to_numpy()
    partition, step = np.diff(reduces), np.diff(steps)
    if np.all((partition > 0) | ((partition == 0) & (step >= 0))):
        return table
    return table.take(pa.array(np.lexsort((steps, reduces))))


def _pruned(
    table: pa.Table, predicates: Sequence[Predicate], allowed: frozenset[int] | None
) -> pa.Table:
    table = with_file_ends(table)
    if allowed is not None:
        table = _in_partitions(table, allowed)
    # Statistics are not copied with the parts that remain.
    parts = table.select(READ_SCHEMA.names)
    return _where(parts, may_match(table, predicates)) if predicates else parts


def _in_partitions(table: pa.Table, allowed: frozenset[int]) -> pa.Table:
    return _where(table, np.isin(table["reduce"].to_numpy(), list(allowed)))


def _where(table: pa.Table, keep: NDArray[np.bool_]) -> pa.Table:
    """Filter a table; rows are copied unless they are neighbours and most of the table."""
    kept = np.flatnonzero(keep)
    # A short slice would keep the whole table in memory as long as the plan.
    if 2 * len(kept) > len(keep) and kept[-1] - kept[0] + 1 == len(kept):
        return table.slice(kept[0], len(kept))
    return table.take(pa.array(kept))


class Opened(NamedTuple):
    """An exchange, and its newest step where the choice of steps depends on it."""

    exchange: ExchangeRecord
    newest: int | None


def open_exchange(store: Store, options: ReadOptions) -> Opened:
    """Read the exchange's record and fix the newest step, without reading any step."""
    ledger = Ledger(store)
    opened = _open(store, ledger, options)
    if isinstance(opened, Snapshot):
        return Opened(opened.exchange, None)
    follows = options.as_of_step is None and options.steps.lower() in _FROM_NEWEST
    return Opened(opened, ledger.log.last_number() if follows else None)


def take_snapshot(store: Store, options: ReadOptions, newest: int | None = None) -> Snapshot:
    """Decide once what a read sees; `newest` repeats the decision for an exchange opened before.

    Spark opens an exchange in one process and plans its scans in others, so each reads the records.
    """
    ledger = Ledger(store)
    exchange = _open(store, ledger, options)
    if isinstance(exchange, Snapshot):
        return exchange
    log, steps = ledger.log, options.steps.lower()
    if options.as_of_step is not None:
        return Snapshot(store, exchange, log.visible(options.as_of_step))
    if steps not in _FROM_NEWEST:
        numbers = _numbers(steps)
        if len(numbers) > 1:
            # The log has no gap: if it has the last step, it has them all.
            log.read(numbers[-1])
        return Snapshot(store, exchange, log.read_many(numbers))
    newest = log.last_number() if newest is None else newest
    chosen: Sequence[StepRecord] = ()
    if newest and not steps:
        chosen = log.visible(newest)
    elif newest:
        chosen = log.read_many(range(1 if steps == "all" else newest, newest + 1))
    return Snapshot(store, exchange, chosen, newest=newest, current=not steps)


def _open(store: Store, ledger: Ledger, options: ReadOptions) -> ExchangeRecord | Snapshot:
    """Read the exchange's record; for a root without records, or a query, list the output."""
    format = ledger.format()
    if format is None:
        # Writers create the format's record before any data. Read it again after listing the data:
        # if it is still missing, ffq_spark did not write the data.
        queries = stored.numbers(store, paths.DATA)
        format = ledger.format()
        if format is None:
            return _unrecorded(store, options, queries)
    format.check_reader(store.url(paths.FORMAT))
    if options.query is not None:
        return _one_query(store, ledger, options)
    if options.attempt != "registered":
        raise BadOption("`attempt` needs the number of the query, too", option="query")
    ledger.roll_forward()
    exchange = ledger.exchange()
    if exchange is None:
        raise ExchangeNotFound(f"nothing has been committed to {store.url()} yet")
    if options.steps and options.as_of_step is not None:
        raise BadOption("give either steps or asOfStep, not both", option="steps")
    return exchange


def _numbers(steps: str) -> Sequence[int]:
    match = _STEPS.fullmatch(steps.strip())
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if last < first:
        message = f"steps={steps!r} must be 17, 10..17, latest or all"
        raise BadOption(message, option="steps")
    return range(first, last + 1)


def _one_query(store: Store, ledger: Ledger, options: ReadOptions) -> Snapshot:
    """List one query's output by its indexes, to inspect a write that may be unfinished."""
    query = options.query
    assert query is not None
    if options.steps or options.as_of_step is not None:
        raise BadOption("give either query or steps and asOfStep, not both", option="steps")
    outcome = ledger.outcome(query)
    step = claimed_step(store, outcome)
    if step is None:
        query, stage = stored.choose_stage(store, query, options.stage)
    elif options.stage not in (None, step.stage):
        raise QueryNotFound(f"query {query} has no stage {options.stage}")
    else:
        stage = step.stage
    with ledger.log.explaining_expiry(outcome):
        raw = _stored_parts(StageAttempts.of(store, query, stage, step), options.attempt)
    return Snapshot(store, ledger.exchange() or _guess(store, raw), (), raw)


def _unrecorded(store: Store, options: ReadOptions, queries: Sequence[int]) -> Snapshot:
    """List the output of a root without records, as FFQ leaves it."""
    if not queries:
        raise ExchangeNotFound(f"there is no exchange at {store.url()}")
    if options.steps or options.as_of_step is not None:
        raise BadOption(
            "this root has no step log, since FFQ wrote it: leave steps and asOfStep out",
            option="steps",
        )
    query = stored.require_one(queries, options.query, "query", store.url(paths.DATA))
    query, stage = stored.choose_stage(store, query, options.stage)
    raw = _stored_parts(StageAttempts(store, query, stage, None), options.attempt)
    return Snapshot(store, _guess(store, raw), (), raw)


def _stored_parts(attempts: StageAttempts, attempt: str) -> pa.Table:
    """List the parts of a stage by its indexes, with columns as a snapshot's parts have them."""
    indexes = attempts.indexes(attempt)
    query = attempts.query
    largest = max(query, attempts.stage, *(index.id.map_task for index in indexes))
    if largest >= 1 << 63:
        raise Unsupported(f"FFQ's number {largest} does not fit into 63 bits")
    table = stored.parts_of(indexes)
    count = table.num_rows
    table = table.add_column(0, PARTS_SCHEMA.field(0), [pa.nulls(count, pa.int64())])
    queries = pa.repeat(pa.scalar(query, pa.int64()), count)
    return table.add_column(1, PARTS_SCHEMA.field(1), [queries])


def _guess(store: Store, raw: pa.Table) -> ExchangeRecord:
    """Derive an exchange's record from its files, without keys and with the partitions seen."""
    if raw.num_rows == 0:
        raise ExchangeNotFound(f"{store.url()} holds no rows and no record of its columns")
    (part,) = list_parts(raw.slice(0, 1))
    return ExchangeRecord.of(part_schema(store, part), (), pc.max(raw["reduce"]).as_py() + 1)
