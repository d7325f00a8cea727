"""The public API of an exchange: read, inspect and maintain it without Spark or Java."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ffq_spark.errors import BadOption
from ffq_spark.exchange.attempts import resolution
from ffq_spark.exchange.attempts.resolution import Resolved
from ffq_spark.exchange.attempts.states import AttemptState, attempt_states
from ffq_spark.exchange.attempts.status import QueryStatus, all_statuses, query_status
from ffq_spark.exchange.compute.keys import key_predicates
from ffq_spark.exchange.ledger import consumers
from ffq_spark.exchange.ledger import pause as pausing
from ffq_spark.exchange.ledger.cancel import USER_CANCELED, request_cancel
from ffq_spark.exchange.ledger.consumers import ConsumerRecord, HoldRecord
from ffq_spark.exchange.maintenance.deletion import GcReport
from ffq_spark.exchange.maintenance.gc import (
    DEFAULT_TTL_SECONDS,
    OnRemoved,
    collect_garbage,
    inactive_queries,
)
from ffq_spark.exchange.maintenance.rescale import rescale
from ffq_spark.exchange.maintenance.verify import Progress, VerifyReport, verify_snapshot
from ffq_spark.exchange.maintenance.versions import Version, rollback, versions
from ffq_spark.exchange.read.fetch import fetch_part
from ffq_spark.exchange.read.part_lookup import registered_part
from ffq_spark.exchange.read.row_shape import output_schema
from ffq_spark.exchange.read.rows import check_readable, read_rows
from ffq_spark.exchange.scan.info import ExchangeInfo, summarize
from ffq_spark.exchange.scan.partitioning import check_mergeable
from ffq_spark.exchange.scan.read_plan import ReadPlan, plan_read
from ffq_spark.exchange.scan.snapshot import Snapshot, take_snapshot
from ffq_spark.format.paths import AttemptId
from ffq_spark.format.records import CancelRecord, RoutingRecord, StepRecord
from ffq_spark.options import PlanArguments, ReadArguments, ReadOptions
from ffq_spark.store import ReadTotals, Store

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Exchange:
    """An exchange at a root path. Every call reads the current state from storage.

    >>> from ffq_spark.examples import tiny_exchange
    >>> exchange = tiny_exchange()
    >>> exchange.read(columns=["id"]).read_all().num_rows
    6
    >>> exchange.lookup(4).to_pylist()
    [{'id': 4, 'name': 'row 4'}]
    """

    def __init__(
        self,
        root: str,
        storage_options: Mapping[str, Any] | None = None,
        *,
        store: Store | None = None,
    ) -> None:
        self.root = root
        self._store = store or Store(root, storage_options)

    def __repr__(self) -> str:
        return f"Exchange({self.root!r})"

    def info(self) -> ExchangeInfo:
        """Summarize the exchange and its current snapshot."""
        return summarize(self._store, self.root)

    def steps(self) -> list[StepRecord]:
        """List the whole log, oldest step first, replaced steps included."""
        return list(take_snapshot(self._store, ReadOptions(steps="all")).steps)

    def versions(self) -> list[Version]:
        """List every version, oldest first, with its steps and whether it can still be read."""
        return versions(self._store)

    def rollback(self, step: int) -> StepRecord:
        """Commit a new step that makes the snapshot as of an earlier step current again."""
        return rollback(self._store, step)

    def rescale(self, partitions: int) -> RoutingRecord:
        """Change the number of partitions for writes that begin from now on; rewrite nothing.

        Steps keep their own number, and a snapshot is read at the greatest common divisor.
        """
        return rescale(self._store, partitions)

    def parts(self, **options: Unpack[ReadArguments]) -> pa.Table:
        """List the parts that a `read` with these options would open, one row each."""
        snapshot, chosen = self._snapshot(options)
        return snapshot.parts(partitions=chosen.partitions)

    def read(
        self, *, totals: ReadTotals | None = None, **options: Unpack[ReadArguments]
    ) -> pa.RecordBatchReader:
        """Read rows batch by batch; DuckDB, Polars, pandas and pyarrow accept the result.

        `totals` counts the requests, the bytes and the peak of bytes requested ahead.

        >>> from ffq_spark.examples import tiny_exchange
        >>> tiny_exchange().read(columns=["name"], partitions=[3]).read_all().num_rows
        1
        """
        snapshot, chosen = self._snapshot(options)
        exchange = snapshot.exchange
        check_readable(exchange, chosen)
        check_mergeable(snapshot, chosen)
        parts = snapshot.parts(partitions=chosen.partitions)
        schema = output_schema(exchange.schema, chosen)
        batches = read_rows(self._store, parts, exchange, chosen, schema, totals=totals)
        return pa.RecordBatchReader.from_batches(schema, batches)

    def merge(
        self, by: Sequence[str] | str, **options: Unpack[ReadArguments]
    ) -> pa.RecordBatchReader:
        """Read rows in ascending order of some columns, nulls first, by merging sorted parts.

        Every step must be written with a `sortBy` that begins with `by`. Rows that are equal in
        these columns come in the order of `read`. Rows beyond 64 MiB go through local disk.

        >>> from ffq_spark.examples import tiny_exchange
        >>> tiny_exchange().merge(by="id", columns=["id"]).read_all()["id"].to_pylist()
        [0, 1, 2, 3, 4, 5]
        """
        options["merge_by"] = by or ()
        return self.read(**options)

    def plan(self, **options: Unpack[PlanArguments]) -> ReadPlan:
        """Plan the tasks of a read from metadata alone, as Spark and the service plan them.

        >>> from ffq_spark.examples import tiny_exchange
        >>> [task.partitions for task in tiny_exchange().plan(min_tasks=2).tasks]
        [(0,), (1, 3)]
        """
        return plan_read(self._store, ReadOptions.of_python(options))

    def lookup(self, key: Any, **options: Unpack[ReadArguments]) -> pa.Table:
        """Read all rows of one key; only the partition that can hold it is opened.

        `key` is a value, a tuple in the order of the keys, or a dict by column. A string that is
        not UTF-8 is given as bytes.
        """
        snapshot, chosen = self._snapshot(options)
        exchange = snapshot.exchange
        check_readable(exchange, chosen)
        check_mergeable(snapshot, chosen)
        predicates = key_predicates(exchange, key)
        parts = snapshot.parts(predicates, chosen.partitions)
        schema = output_schema(exchange.schema, chosen)
        rows = read_rows(self._store, parts, exchange, chosen, schema, equal=predicates)
        return pa.Table.from_batches(rows, schema)

    def attempts(self, query: int | None = None) -> list[AttemptState]:
        """List every attempt with its state on storage and its task in the task log."""
        return list(attempt_states(self._store, query))

    def available_attempts(self, query: int, stage: int, map_task: int) -> list[int]:
        """List every attempt directory of a map task, ascending, whatever its state."""
        return resolution.available_attempts(self._store, query, stage, map_task)

    def latest_attempt(
        self, query: int, stage: int, map_task: int, rule: str = "registered"
    ) -> int:
        """Return the attempt that counts: registered, else the largest complete one.

        A damaged index is an error, as in a read. `rule="ffq"` gives the largest number, complete
        or not.
        """
        return resolution.latest_attempt(self._store, query, stage, map_task, rule)

    def resolve(
        self, query: int, stage: int | None = None, rule: str = "registered"
    ) -> dict[int, Resolved]:
        """Map each map task to the attempt that counts, and why."""
        return resolution.resolve(self._store, query, stage, rule)

    def status(self, query: int | None = None) -> list[QueryStatus]:
        """Report the status of every query, or of one."""
        return all_statuses(self._store) if query is None else [query_status(self._store, query)]

    def cancel(self, query: int, message: str, code: str = USER_CANCELED) -> CancelRecord:
        """Request that a query's initiator ends it; the first request is kept."""
        return request_cancel(self._store, query, message, code)

    def check(self) -> dict[int, str]:
        """Map each query that is no longer active to the reason: an outcome, or `lease gone`."""
        return inactive_queries(self._store)

    def gc(
        self,
        ttl: float = DEFAULT_TTL_SECONDS,
        *,
        dry_run: bool = False,
        rule: str = "registered",
        retention: float | None = None,
        on_removed: OnRemoved | None = None,
    ) -> GcReport:
        """Delete stale attempts older than `ttl` seconds and the data of lost queries.

        `retention` seconds after it was replaced, a version's data is deleted too; the newest two
        versions stay. `on_removed` is called with the name of every attempt directory.
        """
        return collect_garbage(
            self._store,
            ttl_ms=_milliseconds(ttl, "ttl"),
            dry_run=dry_run,
            rule=rule,
            retention_ms=None if retention is None else _milliseconds(retention, "retention"),
            on_removed=on_removed,
        )

    def hold(self, step: int, name: str) -> HoldRecord:
        """Keep a step and all steps visible with it readable until the hold is released."""
        return consumers.hold(self._store, name, step)

    def release(self, name: str) -> None:
        """End a hold."""
        consumers.release(self._store, name)

    def holds(self) -> list[HoldRecord]:
        """List the holds."""
        return consumers.holds(self._store)

    def consumers(self) -> list[ConsumerRecord]:
        """List the streams that read under a name, and how far each has read."""
        return consumers.consumers(self._store)

    def forget(self, consumer: str) -> None:
        """Delete the progress of a consumer that will not return, so that it keeps no steps."""
        consumers.forget(self._store, consumer)

    def pause(self, at: int | None = None) -> int:
        """Stop all streams that read this exchange at one step, and return its number."""
        return pausing.pause(self._store, at)

    def resume(self) -> None:
        """End a pause."""
        pausing.resume(self._store)

    def paused_at(self) -> int | None:
        """Return the step at which streams rest: 0 while undecided, None without a pause."""
        return pausing.paused_at(self._store)

    def fetch(
        self,
        query: int,
        map_task: int,
        reduce: int,
        *,
        stage: int = 0,
        attempt: int = 0,
        start_offset: int = 0,
        max_bytes: int = 0,
    ) -> bytes:
        """Fetch the raw bytes of one part, as FFQ's FetchShufflePartition does.

        Attempt 0 is the latest; `max_bytes` 0 means to the end; a start behind it gives no bytes.
        """
        id = AttemptId(query, stage, map_task, attempt)
        data = fetch_part(self._store, registered_part(self._store, id, reduce))
        end = start_offset + max_bytes if max_bytes else len(data)
        return bytes(data[min(start_offset, len(data)) : min(end, len(data))])

    def verify(
        self, *, progress: Progress | None = None, **options: Unpack[ReadArguments]
    ) -> VerifyReport:
        """Read everything in full and report all damage instead of stopping at the first."""
        return verify_snapshot(self._snapshot(options)[0], progress)

    def _snapshot(self, given: Mapping[str, Any]) -> tuple[Snapshot, ReadOptions]:
        options = ReadOptions.of_python(given)
        return take_snapshot(self._store, options), options


def _milliseconds(seconds: float, option: str) -> int:
    if not 0 <= seconds < math.inf:
        message = f"{option}={seconds} must be a number of seconds, at least 0"
        raise BadOption(message, option=option)
    return int(seconds * 1000)
