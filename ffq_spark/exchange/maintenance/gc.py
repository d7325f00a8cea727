"""Garbage collection: delete data that readers no longer need, without harm to live writers.

A query without an outcome is touched only after its initiator's lease has lapsed and this process
has created its outcome (LOST). The attempts that a step registered are kept while the step can be
read. Outcomes are never deleted, because they refuse the commit of a driver that resumes too late.
A run may be repeated, interrupted, or made by two processes at once.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from ffq_spark.errors import BadOption, CorruptRecord, FfqError, Lost
from ffq_spark.exchange.attempts import stored
from ffq_spark.exchange.attempts.resolution import check_rule
from ffq_spark.exchange.ledger import leases
from ffq_spark.exchange.ledger.claims import Claim, claim_state
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.maintenance import retention
from ffq_spark.exchange.maintenance.clock import trusted_now_ms
from ffq_spark.exchange.maintenance.deletion import GcReport, delete_directories, delete_file
from ffq_spark.exchange.maintenance.ffq_roots import map_tasks, stale_by_ffq, stale_without_records
from ffq_spark.exchange.maintenance.recheck import RecheckTimes
from ffq_spark.exchange.maintenance.versions import release_finished
from ffq_spark.format import paths
from ffq_spark.format.ids import query_time_ms
from ffq_spark.format.records import Outcome, OutcomeRecord, QueryRecord, StepBody
from ffq_spark.store import Directory, Store

DEFAULT_TTL_SECONDS = 24 * 3600
_EARLIEST_MS = 1_577_836_800_000  # 2020: ffq_spark made no query number before.
_LEFTOVER_MS = 3600 * 1000

OnRemoved = Callable[[str], None]


def inactive_queries(store: Store, now: int | None = None) -> dict[int, str]:
    """Map each query that is no longer active to the reason: its outcome, or `lease gone`."""
    moment = trusted_now_ms(store) if now is None else now
    reasons: dict[int, str] = {}
    opened, ended = _queries(store)
    has_outcome = frozenset(ended)
    for query in opened:
        try:
            if query in has_outcome:
                outcome = Ledger(store).outcome(query)
                reasons[query] = outcome.outcome.value if outcome else "unknown"
            elif not leases.is_active(store, _record(store, query), moment):
                reasons[query] = "lease gone"
        except CorruptRecord as error:
            reasons[query] = f"unreadable: {error}"
    return reasons


def collect_garbage(
    store: Store,
    *,
    ttl_ms: int,
    dry_run: bool = False,
    rule: str = "registered",
    retention_ms: int | None = None,
    now: int | None = None,
    on_removed: OnRemoved | None = None,
) -> GcReport:
    """Delete stale attempts past the TTL, lost queries, expired steps and abandoned files.

    `on_removed` is called with every attempt directory that was deleted, or would be.
    """
    check_rule(rule)
    if ttl_ms < 0 or (retention_ms or 0) < 0:
        raise BadOption("ttl and retention must not be negative", option="ttl")
    report = GcReport(dry_run)
    run = _GcRun(store, ttl_ms, trusted_now_ms(store) if now is None else now, report)
    # Data is listed before the format's record is read: if that is missing, the listed queries
    # cannot belong to an exchange that another process creates in the meantime.
    queries = stored.numbers(store, paths.DATA)
    if not _has_records(store):
        deleted = run.without_records(queries, rule)
    elif rule == "ffq":
        message = "this root has records, and rule=ffq could delete registered attempts"
        raise BadOption(f"{message}; use rule=registered", option="rule")
    else:
        deleted = run.with_records(queries, retention_ms)
    for attempt in deleted:
        if on_removed is not None:
            on_removed(attempt)
    return report


def _has_records(store: Store) -> bool:
    ledger = Ledger(store)
    format = ledger.format()
    if format is None:
        # The format's record is created before all others: look for it again after they are listed.
        opened, _ = _queries(store)
        format = ledger.format()
        if format is None and opened:
            message = "query records exist, but the record of the format is missing"
            raise CorruptRecord(message, path=store.url(paths.FORMAT))
    if format is not None:
        format.check_writer(store.url(paths.FORMAT))
    return format is not None


class _GcRun:
    """One pass over a root. Its generators yield each attempt directory once it is deleted."""

    def __init__(self, store: Store, ttl_ms: int, now: int, report: GcReport) -> None:
        self._store = store
        self._ledger = Ledger(store)
        self._ttl_ms = ttl_ms
        self._now = now
        self._report = report
        self._rechecks = RecheckTimes(store, now)

    def with_records(self, queries: Sequence[int], retention_ms: int | None) -> Iterator[str]:
        """Collect the garbage of a root with records; `queries` are those that have data."""
        manifests = _manifests(self._store)
        # A query's record precedes its data, so records are listed after data: otherwise a query
        # that begins in between would look like an orphan.
        opened, ended = _queries(self._store)
        unfinished = np.setdiff1d(opened, ended)
        candidates = np.union1d(np.union1d(queries, manifests), unfinished)
        candidates = np.setdiff1d(candidates, self._rechecks.not_due())
        known = np.isin(candidates, opened) | np.isin(candidates, ended)
        for number, is_known in zip(candidates, known, strict=True):
            query = int(number)
            with self._problems_of(f"query {query}"):
                yield from self._collect(query) if is_known else self._collect_orphan(query)
        if retention_ms is not None:
            with self._problems_of("the log"):
                yield from self._expire(self._now - retention_ms)
        if not self._report.dry_run:
            with self._problems_of("the recheck times"):
                self._rechecks.save(queries)
        self._remove_leftovers()

    def without_records(self, queries: Sequence[int], rule: str) -> Iterator[str]:
        """Collect the replaced attempts of a root without records, one map task at a time."""
        choose = stale_by_ffq if rule == "ffq" else stale_without_records
        for task in map_tasks(self._store, queries):
            with self._problems_of("map task {2} of query {0}, stage {1}".format(*task)):
                stale = choose(self._store, task, self._ttl_ms, self._now, self._report)
                directories = (d for id in stale for d in self._store.tree(id.directory))
                yield from delete_directories(self._store, directories, self._report)

    @contextmanager
    def _problems_of(self, subject: str) -> Iterator[None]:
        """Record a failure of the block in the report and carry on."""
        try:
            yield
        except (FfqError, OSError) as error:
            self._report.add_problem(f"{subject}: {error}")

    def _collect(self, query: int) -> Iterator[str]:
        """Delete what a query with a record has left, by its outcome."""
        outcome = self._ledger.outcome(query) or self._fence(query)
        if outcome is None:
            return
        if outcome.outcome is Outcome.COMMITTED:
            yield from self._collect_committed(outcome)
        elif outcome.outcome is Outcome.LOST or self._is_old(outcome.at_ms):
            yield from self._delete_query(query)

    def _fence(self, query: int) -> OutcomeRecord | None:
        """End a query whose lease has lapsed with the outcome LOST; None while it is active."""
        record = _record(self._store, query)
        if leases.is_active(self._store, record, self._now):
            return None
        if self._report.dry_run:
            self._report.fenced.append(query)
            return OutcomeRecord(query, Outcome.LOST, self._now, "")
        message = f"the lease of {record.initiator} is gone"
        outcome = self._ledger.end(query, Outcome.LOST, message, code=Lost.code)
        # A commit that came first still needs its marker, because it may not be published yet.
        if outcome.outcome is Outcome.LOST:
            self._store.delete(paths.pending(query))
            self._report.fenced.append(query)
        return outcome

    def _collect_committed(self, outcome: OutcomeRecord) -> Iterator[str]:
        """Delete the stale attempts of a committed query, or all of it if it lost its claims."""
        if outcome.step is None or not self._is_old(outcome.at_ms):
            return
        claim = claim_state(self._store, outcome)
        if claim is Claim.LOST:
            yield from self._delete_query(outcome.query)
            return
        files_before = self._report.files
        step = outcome.step
        stale = self._store.tree(f"{paths.DATA}/{outcome.query}", skip=step.is_registered)
        yield from delete_directories(self._store, stale, self._report)
        if claim is Claim.WON and self._report.files == files_before:
            self._rechecks.postpone(outcome.query, outcome.at_ms)

    def _collect_orphan(self, query: int) -> Iterator[str]:
        """Delete data without a query record: a query's record precedes all that it writes."""
        made_at_ms = query_time_ms(query)
        if not _EARLIEST_MS < made_at_ms <= self._now:
            path = self._store.url(f"{paths.DATA}/{query}")
            self._report.add_problem(f"query {query}: not written by ffq_spark ({path})")
        elif self._is_old(made_at_ms):
            yield from self._delete_query(query)

    def _is_old(self, moment: int) -> bool:
        return moment + self._ttl_ms <= self._now

    def _delete_query(self, query: int) -> Iterator[str]:
        """Delete all data of a query without a step, and its manifest."""
        directories = self._store.tree(f"{paths.DATA}/{query}")
        yield from delete_directories(self._store, directories, self._report)
        manifest = paths.manifest(query)
        data = self._store.read_optional(manifest)
        if data is not None:
            delete_file(self._store, manifest, len(data), self._report)

    def _expire(self, before: int) -> Iterator[str]:
        """Delete the data of the steps that retention lets go."""
        if not self._report.dry_run:
            release_finished(self._store, self._ledger)
        steps = list(retention.expirable_steps(self._store, before))
        # Markers come first: a reader that misses a file finds the reason. Whoever asks to hold a
        # step, or to roll back to it, sees its marker, or the second look sees the request.
        if not self._report.dry_run:
            for step in steps:
                self._store.create_once(paths.expired(step.step), b"{}\n")
            marked = {step.step for step in steps}
            expirable = retention.expirable_steps(self._store, before)
            steps = [step for step in expirable if step.step in marked]
        for step in steps:
            directories = self._registered_directories(step.body)
            yield from delete_directories(self._store, directories, self._report)
            # The manifest goes last: while it exists, the next run finishes an interrupted expiry.
            delete_file(self._store, step.body.manifest, step.body.manifest_bytes, self._report)
            self._report.expired.append(step.step)

    def _registered_directories(self, body: StepBody) -> Iterator[Directory]:
        """Yield the attempts that a step names, and the directories that contain them."""
        for directory in self._store.tree(f"{paths.DATA}/{body.query}", skip=body.is_stale):
            files = directory.files if body.is_registered(directory.path) else []
            yield Directory(directory.path, files)

    def _is_live(self, path: str) -> bool:
        """Return whether a file's query is unfinished: an upload may take longer than the TTL."""
        name = path.removeprefix(f"{paths.MANIFESTS}/").removeprefix(f"{paths.DATA}/")
        query = paths.parse_number(name.partition("/")[0].removesuffix(".arrow"))
        if query is None or self._store.read_optional(paths.query(query)) is None:
            return False
        # A query that this dry run would fence still has no outcome.
        return query not in self._report.fenced and self._ledger.outcome(query) is None

    def _remove_leftovers(self) -> None:
        """Remove temporary files, unfinished uploads and lapsed leases."""
        before = self._now - max(self._ttl_ms, _LEFTOVER_MS)
        dry_run = self._report.dry_run
        with self._problems_of("leftovers"):
            for leftover in self._store.leftovers(before):
                if not self._is_live(leftover.path):
                    self._report.leftovers += 1
                    if not dry_run:
                        self._store.delete_leftover(leftover)
        for entry in self._store.list(paths.LEASES):
            with self._problems_of(f"lease {entry.name}"):
                initiator = entry.name.removesuffix(".json")
                lease = leases.read(self._store, initiator)
                if lease and lease.expires_at_ms <= before:
                    self._report.leftovers += 1
                    if not dry_run:
                        leases.release(self._store, initiator)


def _queries(store: Store) -> tuple[Sequence[int], Sequence[int]]:
    """List the queries that have a record, and those that have an outcome."""
    opened, ended = array("Q"), array("Q")
    for entry in store.scan(paths.QUERIES):
        name, _, kind = entry.name.removesuffix(".json").partition(".")
        number = paths.parse_number(name)
        if number is not None and number <= paths.MAX_ID and kind in ("", "outcome"):
            (ended if kind else opened).append(number)
    return stored.compact(opened), stored.compact(ended)


def _manifests(store: Store) -> Sequence[int]:
    """List the queries that have a manifest."""
    names = (entry.name.removesuffix(".arrow") for entry in store.scan(paths.MANIFESTS))
    return stored.compact(paths.parse_number(name) for name in names)


def _record(store: Store, query: int) -> QueryRecord:
    path = paths.query(query)
    return QueryRecord.decode(store.read(path), store.url(path))
