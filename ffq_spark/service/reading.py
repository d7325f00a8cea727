"""From a request to rows: a snapshot is decided once, and its tickets never change their mind."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import xxhash

from ffq_spark.errors import (
    BadOption,
    CorruptIndex,
    CorruptPart,
    CorruptRecord,
    FfqError,
    KeyColumnMissing,
    NoAttempts,
    PartitionNotFound,
    QueryNotFound,
    StepNotFound,
    TicketStale,
    UnsupportedType,
)
from ffq_spark.exchange.compute.keys import key_predicates, matching_rows
from ffq_spark.exchange.compute.pruning import Predicate
from ffq_spark.exchange.exchange import output_schema, python_options
from ffq_spark.exchange.ledger.step_log import StepLog
from ffq_spark.exchange.read.bounded import Limits, read_bounded
from ffq_spark.exchange.read.rows import check_readable, read_rows
from ffq_spark.exchange.scan.snapshot import Snapshot, take_snapshot
from ffq_spark.exchange.scan.tasks import read_tasks
from ffq_spark.format.records import ExchangeRecord, StepRecord
from ffq_spark.options import ReadOptions
from ffq_spark.service.roots import Roots
from ffq_spark.service.wire import Read, Task
from ffq_spark.store import Store

# What tells one part from another, and what was committed of it.
_IDENTITY = (
    *("step", "query", "stage", "map_task", "attempt", "reduce"),
    *("file", "offset", "bytes", "rows", "checksum"),
)
# What planning a ticket raises where another exchange took the place of its own.
_GONE = (
    *(StepNotFound, QueryNotFound, NoAttempts, PartitionNotFound, KeyColumnMissing),
    *(BadOption, UnsupportedType),
)
_DAMAGE = (CorruptPart, CorruptRecord, CorruptIndex)
_CACHED_READS = 32
_CACHED_PARTS = 1_000_000


@dataclass(frozen=True)
class Plan:
    """A read that is decided: the snapshot's parts, in the order that tickets count them."""

    read: Read
    store: Store
    exchange: ExchangeRecord
    options: ReadOptions
    predicates: tuple[Predicate, ...]
    parts: pa.Table
    last: StepRecord | None
    """The newest step of the snapshot; None for a query's output without a step."""

    @property
    def step(self) -> int:
        return self.last.step if self.last else 0

    @property
    def is_in_log(self) -> bool:
        """Whether the log still has the newest step: not if the exchange was written anew."""
        try:
            return self.last == StepLog(self.store).read(self.step)
        except StepNotFound:
            return False

    @property
    def schema(self) -> pa.Schema:
        return output_schema(self.exchange.schema, self.options)

    @property
    def exact(self) -> bool:
        """Whether the parts' rows are the read's rows."""
        return not self.predicates and not self.options.consolidate

    def tasks(self) -> Iterator[tuple[Task, pa.RecordBatch]]:
        """A ticket for each read task, with its parts."""
        first = 0
        for parts in read_tasks(self.parts, self.options):
            yield Task.within(self.read, first, parts.num_rows, digest(parts)), parts
            first += parts.num_rows


def digest(parts: pa.Table | pa.RecordBatch) -> int:
    """What a ticket remembers of its parts; 63 bits, as JSON's readers differ beyond.

    >>> digest(pa.table({name: [1] for name in _IDENTITY})) < 1 << 63
    True
    """
    found = xxhash.xxh3_64()
    for name in _IDENTITY:
        column = parts[name]
        if pa.types.is_string(column.type):
            found.update("\n".join(column.to_pylist()).encode())
        else:
            known = column.is_valid().to_numpy(zero_copy_only=False)
            found.update(known.tobytes())
            found.update(column.fill_null(0).to_numpy().astype("uint64").tobytes())
    return int(found.intdigest()) >> 1


class Reading:
    """Plans reads, and remembers the plans of snapshots that cannot change."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._lock = threading.Lock()
        # By how a request is spelled: to Python, 1 and True and 1.0 are one key.
        self._plans: OrderedDict[str, Plan] = OrderedDict()

    def plan(self, read: Read) -> Plan:
        """Decide what a read sees, now and for all its tickets."""
        found = self._remembered(read)
        return found if found is not None and found.is_in_log else self._planned_anew(read)

    def _remembered(self, read: Read) -> Plan | None:
        asked = repr(read)
        with self._lock:
            if asked in self._plans:
                self._plans.move_to_end(asked)
            return self._plans.get(asked)

    def _planned_anew(self, read: Read) -> Plan:
        asked = repr(read)
        with self._lock:
            self._plans.pop(asked, None)
        plan = self._planned(read)
        if repr(plan.read) == asked and plan.step:
            self._remember(asked, plan)
        return plan

    def _planned(self, read: Read) -> Plan:
        store = self._roots.store(read.exchange)
        options = _options(read)
        snapshot = take_snapshot(store, options)
        exchange = snapshot.exchange
        check_readable(exchange, options)
        output_schema(exchange.schema, options)
        predicates = [] if read.key is None else key_predicates(exchange, read.key)
        parts = snapshot.parts(predicates, options.partitions)
        frozen, last = _frozen(read, snapshot)
        return Plan(frozen, store, exchange, options, tuple(predicates), parts, last)

    def _remember(self, asked: str, plan: Plan) -> None:
        with self._lock:
            self._plans[asked] = plan
            while len(self._plans) > 1 and (
                len(self._plans) > _CACHED_READS
                or sum(p.parts.num_rows for p in self._plans.values()) > _CACHED_PARTS
            ):
                self._plans.popitem(last=False)

    def task(self, task: Task) -> tuple[Plan, pa.Table]:
        """Return a ticket's plan and parts; raise TicketStale if storage has others.

        A plan that is remembered is not compared with storage: see `rows_of`.
        """
        plan = self._remembered(task.read())
        parts = None if plan is None else _parts_of(task, plan)
        if plan is not None and parts is not None:
            return plan, parts
        return self._task_anew(task)

    def _task_anew(self, task: Task) -> tuple[Plan, pa.Table]:
        try:
            plan = self._planned_anew(task.read())
        except _GONE as error:
            if task.as_of_step is None and not task.steps and task.query is None:
                # No ticket of a service's: it names no snapshot.
                raise
            raise _stale(task, error.message) from error
        parts = _parts_of(task, plan)
        if parts is None:
            raise _stale(task, "its parts differ from the ticket's")
        return plan, parts

    def rows_of(self, task: Task, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give the rows of a ticket; where parts are damaged or missing, say if it is stale."""
        try:
            yield from rows
        except _DAMAGE:
            self._task_anew(task)
            raise


def _parts_of(task: Task, plan: Plan) -> pa.Table | None:
    """The parts of a plan that a ticket was made for, or None if the plan has others."""
    parts = plan.parts.slice(task.first, task.count)
    return parts if parts.num_rows == task.count and digest(parts) == task.check else None


def _stale(task: Task, why: str) -> FfqError:
    return TicketStale(f"{task.exchange} is not what the ticket was made for: {why}")


def _options(read: Read) -> ReadOptions:
    given = {
        "columns": read.columns or None,
        "partitions": read.partitions,
        "steps": read.steps or None,
        "as_of_step": read.as_of_step,
        "query": read.query,
        "stage": read.stage,
        "attempt": read.attempt,
        "metadata_columns": read.metadata_columns,
        "consolidate": read.consolidate,
        "target_partition_bytes": read.target_partition_bytes,
        "min_tasks": read.min_tasks,
        "max_tasks": read.max_tasks,
    }
    return python_options(given)


def _frozen(read: Read, snapshot: Snapshot) -> tuple[Read, StepRecord | None]:
    """Name the steps of a read; where it has none, the digest of its parts alone decides."""
    planning = replace(read, target_partition_bytes=None, min_tasks=None, max_tasks=None)
    if snapshot.raw is not None or not snapshot.steps:
        return planning, None
    first, last = snapshot.steps[0], snapshot.steps[-1]
    if snapshot.current:
        return replace(planning, as_of_step=last.step), last
    if read.as_of_step is None:
        return replace(planning, steps=f"{first.step}..{last.step}"), last
    return planning, last


def rows(plan: Plan, parts: pa.Table, limits: Limits, skip: int = 0) -> Iterator[pa.RecordBatch]:
    """The rows of a plan's parts, the same ones in the same order whenever they are asked for."""
    columns, schema = plan.options.columns or None, plan.exchange.schema
    metadata = plan.options.metadata_columns
    if plan.options.consolidate:
        options = replace(plan.options, credits=limits.part_bytes, verify="full")
        found = read_rows(plan.store, parts, plan.exchange, options, columns=_needed(plan, columns))
    else:
        found = read_bounded(
            plan.store,
            parts,
            schema,
            limits,
            columns=_needed(plan, columns),
            metadata=metadata,
        )
    if plan.predicates:
        names = plan.schema.names
        found = (matching_rows(batch, plan.predicates).select(names) for batch in found)
    return _after(found, skip)


def _needed(plan: Plan, columns: tuple[str, ...] | None) -> list[str] | None:
    """The columns to read: those that are asked for, and those that decide."""
    if columns is None:
        return None
    keys = [predicate.column for predicate in plan.predicates]
    return [*columns, *(name for name in keys if name not in columns)]


def _after(batches: Iterable[pa.RecordBatch], skip: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        left = max(0, batch.num_rows - skip)
        skip -= batch.num_rows - left
        if left:
            yield batch.slice(batch.num_rows - left)
