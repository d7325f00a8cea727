"""Decide which steps and parts a read sees; a snapshot never changes afterwards."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
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
from ffq_spark.exchange.compute.pruning import Predicate, matching_hashes
from ffq_spark.exchange.ledger.claims import claimed_step
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.ledger.log_checkpoint import LogCheckpoint
from ffq_spark.exchange.ledger.step_log import StepLog, Steps
from ffq_spark.exchange.ledger.step_parts import STEP_FIELDS, step_parts, with_modulus
from ffq_spark.exchange.read.part import list_parts
from ffq_spark.exchange.read.part_schema import part_schema
from ffq_spark.exchange.scan.pruned_parts import READ_SCHEMA, pruned_parts, where
from ffq_spark.format import paths
from ffq_spark.format.manifest import with_file_ends
from ffq_spark.format.records import ExchangeRecord, StepRecord
from ffq_spark.options import ReadOptions
from ffq_spark.store import Store

_FROM_NEWEST = ("", "latest", "all")
# Numbers of steps have at most 63 bits.
_STEPS = re.compile(r"([0-9]{1,18})(?:\.\.([0-9]{1,18}))?")


@dataclass(frozen=True)
class Snapshot:
    """The steps of an exchange that one read sees, or one query's output as its indexes list it.

    `founding` is the record in `exchange.json`.
    """

    store: Store
    founding: ExchangeRecord
    steps: Sequence[StepRecord]
    raw: pa.Table | None = None
    newest: int | None = None
    """The newest step, where the choice of steps depended on it."""
    current: bool = False
    """Whether these steps are visible now, so that retention keeps their data."""

    @cached_property
    def partition_counts(self) -> frozenset[int]:
        """The numbers of partitions that the steps with rows have."""
        counts: set[int] = set()
        for piece in self._pieces:
            if isinstance(piece, LogCheckpoint):
                counts |= piece.partitions
            elif piece.body.parts:
                counts.add(piece.body.partitions)
        return frozenset(count or self.founding.partitions for count in counts)

    @cached_property
    def exchange(self) -> ExchangeRecord:
        """The exchange with the number of partitions at which all steps can be read together.

        A row lies in partition `pmod(hash, n)`, so partition i of m contains the partitions i,
        i + m, i + 2m, … of any multiple of m. The steps have their greatest common divisor in
        common.
        """
        common = math.gcd(*self.partition_counts) or self.founding.partitions
        return replace(self.founding, partitions=common)

    def parts(
        self,
        predicates: Sequence[Predicate] = (),
        partitions: frozenset[int] | None = None,
    ) -> pa.Table:
        """List the parts that can hold matching rows, by partition, then step, then map task."""
        self._check_partitions(partitions)
        if self.raw is not None:
            return self._in_partitions(self.raw, partitions)
        hashes = matching_hashes(self.founding, predicates) if predicates else None
        tables = [
            pruned_parts(self._in_partitions(with_file_ends(table), partitions), predicates, hashes)
            for table in self._tables(bool(predicates))
        ]
        # A single table is not copied.
        table = pa.concat_tables(tables or [READ_SCHEMA.empty_table()]).combine_chunks()
        return table if len(self.steps) == 1 else self._by_partition(table)

    @property
    def _pieces(self) -> tuple[StepRecord | LogCheckpoint, ...]:
        return self.steps.pieces if isinstance(self.steps, Steps) else tuple(self.steps)

    @property
    def num_parts(self) -> int:
        """The number of parts before pruning."""
        if self.raw is not None:
            return int(self.raw.num_rows)
        return sum(
            p.num_parts if isinstance(p, LogCheckpoint) else p.body.parts for p in self._pieces
        )

    def part_tables(self, partitions: frozenset[int] | None = None) -> Iterator[pa.Table]:
        """List all parts of some partitions with statistics, which may differ between tables."""
        self._check_partitions(partitions)
        return (self._in_partitions(table, partitions) for table in self._tables(statistics=True))

    def _tables(self, statistics: bool) -> Iterator[pa.Table]:
        """Read the parts of all steps, a table for each log checkpoint and each other step."""
        pieces = self._pieces
        checkpoints = [piece for piece in pieces if isinstance(piece, LogCheckpoint)]
        loose = [piece for piece in pieces if not isinstance(piece, LogCheckpoint)]
        # A log checkpoint outlives the data of its steps. For steps that may have expired, read
        # the manifest: if it exists, so does the data.
        doubtful = StepLog(self.store).expired() if checkpoints and not self.current else set()
        for checkpoint in checkpoints:
            known, others = checkpoint.known_parts(doubtful, statistics=statistics)
            loose += others
            yield with_modulus(known, self.founding.partitions)
        manifests = self.store.read_large([step.body.manifest for step in loose])
        for step, data in zip(loose, manifests, strict=True):
            try:
                path = self.store.url(step.body.manifest)
                parts = step_parts(step, data, path, statistics=statistics)
                yield with_modulus(parts, self.founding.partitions)
            except CorruptRecord:
                StepLog(self.store).refuse_expired(step.step)
                raise

    def _check_partitions(self, partitions: frozenset[int] | None) -> None:
        if partitions is not None and max(partitions) >= self.exchange.partitions:
            known = f"the exchange has partitions 0 to {self.exchange.partitions - 1}"
            message = f"there is no partition {max(partitions)}: {known}"
            raise PartitionNotFound(message, option="partitions")

    def _in_partitions(self, table: pa.Table, partitions: frozenset[int] | None) -> pa.Table:
        if partitions is None:
            return table
        return where(table, np.isin(self.places(table), list(partitions)))

    def places(self, parts: pa.Table) -> NDArray[np.int32]:
        """Return the partition of each part at the number of partitions of `exchange`."""
        places: NDArray[np.int32] = parts["reduce"].to_numpy() % np.int32(self.exchange.partitions)
        return places

    def _by_partition(self, table: pa.Table) -> pa.Table:
        """Sort by partition, then step; the parts of a step are sorted by map task already."""
        steps, places = table["step"].to_numpy(), self.places(table)
        partition, step = np.diff(places), np.diff(steps)
        if np.all((partition > 0) | ((partition == 0) & (step >= 0))):
            return table
        return table.take(pa.array(np.lexsort((steps, places))))


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
    exchange = ledger.exchange() or _guess(store, raw)
    if step is not None and step.partitions:
        exchange = replace(exchange, partitions=step.partitions)
    return Snapshot(store, exchange, (), raw)


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
    for position, (field, value) in enumerate(zip(STEP_FIELDS, (None, query, 0), strict=True)):
        column = pa.repeat(pa.scalar(value, field.type), table.num_rows)
        table = table.add_column(position, field, [column])
    return table


def _guess(store: Store, raw: pa.Table) -> ExchangeRecord:
    """Derive an exchange's record from its files, without keys and with the partitions seen."""
    if raw.num_rows == 0:
        raise ExchangeNotFound(f"{store.url()} holds no rows and no record of its columns")
    (part,) = list_parts(raw.slice(0, 1))
    return ExchangeRecord.of(part_schema(store, part), (), pc.max(raw["reduce"]).as_py() + 1)
