"""Plan reads: decide the snapshot of a request once, so that its tickets never change."""

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
    NotSorted,
    PartitionNotFound,
    QueryNotFound,
    StepNotFound,
    TicketStale,
    UnsupportedType,
)
from ffq_spark.exchange.compute.hash_shards import HashShard, check_divisible
from ffq_spark.exchange.compute.keys import key_predicates
from ffq_spark.exchange.compute.pruning import Predicate
from ffq_spark.exchange.ledger.step_log import StepLog
from ffq_spark.exchange.read.row_shape import output_schema
from ffq_spark.exchange.read.rows import check_readable
from ffq_spark.exchange.scan.partitioning import check_mergeable
from ffq_spark.exchange.scan.snapshot import Snapshot, take_snapshot
from ffq_spark.exchange.scan.tasks import read_tasks
from ffq_spark.format.records import ExchangeRecord, StepRecord
from ffq_spark.options import ReadOptions
from ffq_spark.service.server.roots import Roots
from ffq_spark.service.wire.messages import Read, Task
from ffq_spark.store import Store

# The columns of a manifest that identify a part and its committed content.
_IDENTITY = (
    *("step", "query", "stage", "map_task", "attempt", "reduce"),
    *("file", "offset", "bytes", "rows", "checksum"),
)
# What planning a ticket raises if the exchange was removed and another one written in its place.
_REPLACED = (
    *(StepNotFound, QueryNotFound, NoAttempts, PartitionNotFound, KeyColumnMissing),
    *(BadOption, NotSorted, UnsupportedType),
)
_CORRUPTION = (CorruptPart, CorruptRecord, CorruptIndex)
_CACHED_PLANS = 32
_CACHED_PARTS = 1_000_000


@dataclass(frozen=True)
class Plan:
    """A planned read: the parts of its snapshot, in the order in which tickets count them."""

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
        """The number of the newest step, or 0 without one."""
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
        """The columns that the read returns."""
        return output_schema(self.exchange.schema, self.options)

    @property
    def is_row_count_exact(self) -> bool:
        """Whether the read returns every row of the parts: no filter, no consolidation."""
        return not self.predicates and not self.options.consolidate

    def tasks(self) -> Iterator[Task]:
        """Yield a ticket for each read task."""
        first = 0
        for task in read_tasks(self.parts, self.options, self.exchange.partitions):
            parts, kept = task.parts, task.kept
            ticket = Task.within(self.read, first, parts.num_rows, digest(parts))
            if kept is not None:
                ticket = replace(ticket, shard=kept.number, shards=kept.count)
            yield ticket
            # The shards of a partition have the same parts.
            first += parts.num_rows if kept is None or kept.is_last else 0


def digest(parts: pa.Table | pa.RecordBatch) -> int:
    """Hash what identifies the parts of a ticket, into 63 bits: JSON readers differ beyond them.

    >>> digest(pa.table({name: [1] for name in _IDENTITY})) < 1 << 63
    True
    """
    hasher = xxhash.xxh3_64()
    for name in _IDENTITY:
        column = parts[name]
        if pa.types.is_string(column.type):
            hasher.update("\n".join(column.to_pylist()).encode())
        else:
            is_valid = column.is_valid().to_numpy(zero_copy_only=False)
            hasher.update(is_valid.tobytes())
            hasher.update(column.fill_null(0).to_numpy().astype("uint64").tobytes())
    return int(hasher.intdigest()) >> 1


def shard_of(task: Task, exchange: ExchangeRecord) -> HashShard | None:
    """Return the shard that a ticket names, or None if it has all rows of its parts."""
    if task.shard is None or task.shards is None:
        return None
    check_divisible(exchange)
    return HashShard(task.shard, task.shards)


class ReadPlanner:
    """Plan reads and tickets, with a cache of plans whose snapshots cannot change."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._lock = threading.Lock()
        # Keyed by the repr of the request: 1, 1.0 and True are equal keys, but different requests.
        self._plans: OrderedDict[str, Plan] = OrderedDict()

    def plan(self, read: Read) -> Plan:
        """Plan a read, from the cache if the log still has the plan's newest step."""
        plan = self._cached(read)
        return plan if plan is not None and plan.is_in_log else self._replan(read)

    def plan_task(self, task: Task) -> tuple[Plan, pa.Table]:
        """Return a ticket's plan and parts; raise TicketStale if storage has others.

        A cached plan is not compared with storage: see `detect_stale`.
        """
        plan = self._cached(task.read())
        parts = None if plan is None else _task_parts(task, plan)
        if plan is not None and parts is not None:
            return plan, parts
        return self._replan_task(task)

    def detect_stale(
        self, task: Task, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Yield a ticket's batches; if parts are corrupt or missing, raise TicketStale if it is."""
        try:
            yield from batches
        except _CORRUPTION:
            self._replan_task(task)
            raise

    def _replan_task(self, task: Task) -> tuple[Plan, pa.Table]:
        try:
            plan = self._replan(task.read())
        except _REPLACED as error:
            if task.as_of_step is None and not task.steps and task.query is None:
                # The caller wrote this ticket: all tickets of the service name a snapshot.
                raise
            raise _stale(task, error.message) from error
        parts = _task_parts(task, plan)
        if parts is None:
            raise _stale(task, "its parts differ from the ticket's")
        return plan, parts

    def _replan(self, read: Read) -> Plan:
        request = repr(read)
        with self._lock:
            self._plans.pop(request, None)
        plan = self._make_plan(read)
        if repr(plan.read) == request and plan.step:
            self._cache(request, plan)
        return plan

    def _make_plan(self, read: Read) -> Plan:
        store = self._roots.store(read.exchange)
        options = _read_options(read)
        snapshot = take_snapshot(store, options)
        exchange = snapshot.exchange
        check_readable(exchange, options)
        check_mergeable(snapshot, options)
        output_schema(exchange.schema, options)
        predicates = [] if read.key is None else key_predicates(exchange, read.key)
        parts = snapshot.parts(predicates, options.partitions)
        pinned, last = _pin_snapshot(read, snapshot)
        return Plan(pinned, store, exchange, options, tuple(predicates), parts, last)

    def _cached(self, read: Read) -> Plan | None:
        request = repr(read)
        with self._lock:
            if request in self._plans:
                self._plans.move_to_end(request)
            return self._plans.get(request)

    def _cache(self, request: str, plan: Plan) -> None:
        with self._lock:
            self._plans[request] = plan
            while len(self._plans) > 1 and (
                len(self._plans) > _CACHED_PLANS
                or sum(p.parts.num_rows for p in self._plans.values()) > _CACHED_PARTS
            ):
                self._plans.popitem(last=False)


def _task_parts(task: Task, plan: Plan) -> pa.Table | None:
    """Return a ticket's parts from a plan, or None if the plan has others in their place."""
    parts = plan.parts.slice(task.first, task.count)
    return parts if parts.num_rows == task.count and digest(parts) == task.check else None


def _stale(task: Task, reason: str) -> FfqError:
    return TicketStale(f"{task.exchange} has changed since the ticket was made: {reason}")


def _read_options(read: Read) -> ReadOptions:
    return ReadOptions.of_python(
        {
            "columns": read.columns or None,
            "partitions": read.partitions,
            "steps": read.steps or None,
            "as_of_step": read.as_of_step,
            "query": read.query,
            "stage": read.stage,
            "attempt": read.attempt,
            "metadata_columns": read.metadata_columns,
            "consolidate": read.consolidate,
            "merge_by": read.merge_by or None,
            "target_partition_bytes": read.target_partition_bytes,
            "min_tasks": read.min_tasks,
            "max_tasks": read.max_tasks,
            "split": read.split,
        }
    )


def _pin_snapshot(read: Read, snapshot: Snapshot) -> tuple[Read, StepRecord | None]:
    """Return the read with the steps of its snapshot, and the newest of them.

    A snapshot without steps has no name: only the digest of its parts identifies it.
    """
    unplanned = replace(
        read, target_partition_bytes=None, min_tasks=None, max_tasks=None, split=None
    )
    if snapshot.raw is not None or not snapshot.steps:
        return unplanned, None
    first, last = snapshot.steps[0], snapshot.steps[-1]
    if snapshot.current:
        return replace(unplanned, as_of_step=last.step), last
    if read.as_of_step is None:
        return replace(unplanned, steps=f"{first.step}..{last.step}"), last
    return unplanned, last
