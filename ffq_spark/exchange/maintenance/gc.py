"""Removing what no reader can ever need. Safe at any moment, repeated, and by two at once.

A query without an outcome is touched only after this process has won its outcome (LOST), and that
only when its initiator's lease is gone. What a step registered is never touched while its step can
be read. Outcomes are kept for ever: they are what refuses a driver that wakes up too late.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from ffq_spark.errors import BadOption, CorruptRecord, FfqError
from ffq_spark.exchange.attempts import stored
from ffq_spark.exchange.ledger import claims, leases
from ffq_spark.exchange.ledger.claims import Claim
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.maintenance import retention
from ffq_spark.exchange.maintenance.clock import trusted_now_ms
from ffq_spark.exchange.maintenance.deletion import GcReport, OnRemoved, Removal
from ffq_spark.exchange.maintenance.ffq_roots import map_tasks, stale_by_ffq, stale_without_records
from ffq_spark.exchange.maintenance.recheck import Settled
from ffq_spark.exchange.maintenance.versions import release_finished
from ffq_spark.format import paths
from ffq_spark.format.ids import query_time_ms
from ffq_spark.format.records import Outcome, OutcomeRecord, QueryRecord, StepBody
from ffq_spark.store import Directory, Store

RULES = ("registered", "ffq")
DEFAULT_TTL_SECONDS = 24 * 3600
_EARLIEST_MS = 1_577_836_800_000  # 2020: no query number of ours is older
_LEFTOVER_MS = 3600 * 1000


def inactive_queries(store: Store, now: int | None = None) -> dict[int, str]:
    """Queries that are no longer active, and why: their outcome, or `lease gone`."""
    moment = trusted_now_ms(store) if now is None else now
    found: dict[int, str] = {}
    opened, ended = _queries(store)
    over = frozenset(ended)
    for query in opened:
        try:
            if query in over:
                outcome = Ledger(store).outcome(query)
                found[query] = outcome.outcome.value if outcome else "unknown"
            elif not leases.is_active(store, _record(store, query), moment):
                found[query] = "lease gone"
        except CorruptRecord as error:
            found[query] = f"unreadable: {error}"
    return found


def collect(
    store: Store,
    *,
    ttl_ms: int,
    dry_run: bool = False,
    rule: str = "registered",
    retention_ms: int | None = None,
    now: int | None = None,
    on_removed: OnRemoved | None = None,
) -> GcReport:
    """Remove stale attempts past the TTL, lost queries, expired steps and abandoned files.

    `on_removed` is called with every attempt directory that is gone, or would go.
    """
    if rule not in RULES:
        raise BadOption(f"rule={rule!r} is none of {', '.join(RULES)}", option="rule")
    if ttl_ms < 0 or (retention_ms or 0) < 0:
        raise BadOption("a time to live cannot be negative", option="ttl")
    report = GcReport(dry_run)
    removal = Removal(store, report, on_removed)
    sweep = _Sweep(store, ttl_ms, trusted_now_ms(store) if now is None else now, report, removal)
    queries = stored.numbers(store, paths.DATA)
    if _has_records(store):
        if rule == "ffq":
            message = "FFQ's rule could remove what a step has registered; this root has records"
            raise BadOption(message, option="rule")
        sweep.run(queries, retention_ms)
    else:
        # Only what was there before the format's record was not: a new exchange is none of these.
        sweep.run_without_records(queries, rule)
    return report


def _has_records(store: Store) -> bool:
    # The format's record precedes all others, so it is looked for after them.
    opened, _ = _queries(store)
    path = store.url(paths.FORMAT)
    format = Ledger(store).format()
    if format is not None:
        format.check_writer(path)
    elif opened:
        raise CorruptRecord("there are queries, and no record of the format", path=path)
    return format is not None


class _Sweep:
    """One pass over a root."""

    def __init__(
        self, store: Store, ttl_ms: int, now: int, report: GcReport, removal: Removal
    ) -> None:
        self._store = store
        self._ledger = Ledger(store)
        self._ttl_ms = ttl_ms
        self._report = report
        self._removal = removal
        self._settled = Settled(store, now)
        self._now = now

    def run(self, queries: Sequence[int], retention_ms: int | None) -> None:
        """Everything there is to do where there are records."""
        manifests = _manifests(self._store)
        # Records precede data, so they are listed after it: what was just begun is no orphan.
        opened, ended = _queries(self._store)
        unfinished = np.setdiff1d(_array(opened), _array(ended))
        touched = np.union1d(np.union1d(_array(queries), _array(manifests)), unfinished)
        touched = np.setdiff1d(touched, self._settled.queries())
        known = np.isin(touched, _array(opened)) | np.isin(touched, _array(ended))
        for number, is_known in zip(touched, known, strict=True):
            query = int(number)
            with self._reported(f"query {query}"):
                self._sweep(query, known=bool(is_known))
        if retention_ms is not None:
            with self._reported("the log"):
                self._expire(self._now - retention_ms)
        if not self._report.dry_run:
            with self._reported("what needs no look soon"):
                self._settled.save(queries)
        self._leftovers()

    def run_without_records(self, queries: Sequence[int], rule: str) -> None:
        """The attempts that others have replaced, one map task after the other."""
        choose = stale_by_ffq if rule == "ffq" else stale_without_records
        for task in map_tasks(self._store, queries):
            with self._reported("map task {2} of query {0}, stage {1}".format(*task)):
                stale = choose(self._store, task, self._ttl_ms, self._now, self._report)
                self._removal.remove(d for id in stale for d in self._store.tree(id.directory))

    @contextmanager
    def _reported(self, subject: str) -> Iterator[None]:
        """What fails is told, and stops nothing else."""
        try:
            yield
        except (FfqError, OSError) as error:
            self._report.add_problem(f"{subject}: {error}")

    def _sweep(self, query: int, *, known: bool) -> None:
        if not known:
            self._orphan(query)
            return
        outcome = self._ledger.outcome(query) or self._fence(query)
        if outcome is None:
            return
        if outcome.outcome is Outcome.COMMITTED:
            self._stale(outcome)
        elif outcome.outcome is Outcome.LOST or self._is_old(outcome.at_ms):
            self._remove_query(query)

    def _fence(self, query: int) -> OutcomeRecord | None:
        record = _record(self._store, query)
        if leases.is_active(self._store, record, self._now):
            return None
        if self._report.dry_run:
            self._report.fenced.append(query)
            return OutcomeRecord(query, Outcome.LOST, self._now, "")
        message = f"the lease of {record.initiator} is gone"
        outcome = self._ledger.end(query, Outcome.LOST, message, code="FFQ_LOST")
        # A commit that came first still needs its marker: it may not be published yet.
        if outcome.outcome is Outcome.LOST:
            self._store.delete(paths.pending(query))
            self._report.fenced.append(query)
        return outcome

    def _stale(self, outcome: OutcomeRecord) -> None:
        if outcome.step is None or not self._is_old(outcome.at_ms):
            return
        claim = claims.standing(self._store, outcome)
        if claim is Claim.LOST:
            self._remove_query(outcome.query)
            return
        before = self._report.files
        is_registered = stored.registered_in(outcome.step)
        directory = f"{paths.DATA}/{outcome.query}"
        self._removal.remove(self._store.tree(directory, skip=is_registered))
        if claim is Claim.WON and self._report.files == before:
            self._settled.add(outcome.query, outcome.at_ms)

    def _orphan(self, query: int) -> None:
        """Data of a query that nobody opened: its record precedes all that it writes."""
        made = query_time_ms(query)
        if not _EARLIEST_MS < made <= self._now:
            path = self._store.url(f"{paths.DATA}/{query}")
            self._report.add_problem(f"query {query}: not written by this product ({path})")
        elif self._is_old(made):
            self._remove_query(query)

    def _is_old(self, moment: int) -> bool:
        return moment + self._ttl_ms <= self._now

    def _remove_query(self, query: int) -> None:
        """All that a query without a step has left."""
        self._removal.remove(self._store.tree(f"{paths.DATA}/{query}"))
        manifest = paths.manifest(query)
        data = self._store.read_optional(manifest)
        if data is not None:
            self._removal.remove_file(manifest, len(data))

    def _expire(self, before: int) -> None:
        if not self._report.dry_run:
            release_finished(self._store, self._ledger)
        steps = list(retention.expirable_steps(self._store, before))
        # The marker comes first: whoever then misses a file can say why, and who asks to hold a
        # step or to go back to it sees the marker, or is seen by the second look.
        if not self._report.dry_run:
            for step in steps:
                self._store.create_once(paths.expired(step.step), b"{}\n")
            marked = {step.step for step in steps}
            expirable = retention.expirable_steps(self._store, before)
            steps = [step for step in expirable if step.step in marked]
        for step in steps:
            self._removal.remove(self._registered(step.body))
            # The manifest goes last: while it is there, the next collector finishes this work.
            self._removal.remove_file(step.body.manifest, step.body.manifest_bytes)
            self._report.expired.append(step.step)

    def _registered(self, body: StepBody) -> Iterator[Directory]:
        """The attempts that a step names, and the directories they lie in."""
        is_registered = stored.registered_in(body)

        def is_stale(directory: str) -> bool:
            return stored.is_in_attempt(directory) and not is_registered(directory)

        for directory in self._store.tree(f"{paths.DATA}/{body.query}", skip=is_stale):
            own = is_registered(directory.path)
            yield directory if own else Directory(directory.path, [])

    def _is_live(self, path: str) -> bool:
        """Whether a file is of a query that has not ended: an upload may take longer than a TTL."""
        name = path.removeprefix(f"{paths.MANIFESTS}/").removeprefix(f"{paths.DATA}/")
        query = paths.parse_number(name.partition("/")[0].removesuffix(".arrow"))
        if query is None or self._store.read_optional(paths.query(query)) is None:
            return False
        # A query that has only just been fenced by a dry run still has no outcome.
        return query not in self._report.fenced and self._ledger.outcome(query) is None

    def _leftovers(self) -> None:
        """Temporary files and uploads that were never finished, leases of the dead."""
        before = self._now - max(self._ttl_ms, _LEFTOVER_MS)
        dry_run = self._report.dry_run
        with self._reported("leftovers"):
            self._report.leftovers += self._store.remove_leftovers(
                before, dry_run=dry_run, spared=self._is_live
            )
        for entry in self._store.list(paths.LEASES):
            with self._reported(f"lease {entry.name}"):
                initiator = entry.name.removesuffix(".json")
                lease = leases.read(self._store, initiator)
                if lease and lease.expires_at_ms <= before:
                    self._report.leftovers += 1
                    if not dry_run:
                        leases.release(self._store, initiator)


def _queries(store: Store) -> tuple[Sequence[int], Sequence[int]]:
    """The queries that were opened, and those that have ended."""
    opened, ended = array("Q"), array("Q")
    for entry in store.scan(paths.QUERIES):
        name, _, kind = entry.name.removesuffix(".json").partition(".")
        number = paths.parse_number(name)
        if number is not None and number <= paths.MAX_ID and kind in ("", "outcome"):
            (ended if kind else opened).append(number)
    return stored.compact(opened), stored.compact(ended)


def _manifests(store: Store) -> Sequence[int]:
    """The queries that have a manifest."""
    names = (entry.name.removesuffix(".arrow") for entry in store.scan(paths.MANIFESTS))
    return stored.compact(paths.parse_number(name) for name in names)


def _array(queries: Sequence[int]) -> NDArray[np.uint64]:
    return np.array(queries, np.uint64)


def _record(store: Store, query: int) -> QueryRecord:
    path = paths.query(query)
    return QueryRecord.decode(store.read(path), store.url(path))
