"""Removing what no reader can ever need. Safe at any moment, repeated, and by two at once.

A query without an outcome is touched only after this process has won its outcome (LOST), and that
only when its initiator's lease is gone. What a step registered is never touched while its step can
be read. Outcomes are kept for ever: they are what refuses a driver that wakes up too late.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from ffq_spark.errors import BadOption, CorruptRecord, FfqError
from ffq_spark.exchange import attempts, batches, consumers, leases, retention
from ffq_spark.exchange.ledger import Ledger
from ffq_spark.exchange.unrecorded import stale_by_ffq, stale_without_records
from ffq_spark.format import layout
from ffq_spark.format.ids import now_ms, query_time_ms
from ffq_spark.format.records import Outcome, OutcomeRecord, QueryRecord, StepBody, StepRecord
from ffq_spark.store import Store

RULES = ("registered", "ffq")
DEFAULT_TTL_SECONDS = 24 * 3600
_EARLIEST_MS = 1_577_836_800_000  # 2020: no query number of ours is older
_LEFTOVER_MS = 3600 * 1000


@dataclass
class GcReport:
    """What was removed, or would be; what could not be read is listed and left alone."""

    dry_run: bool
    attempts: list[str] = field(default_factory=list)
    fenced: list[int] = field(default_factory=list)
    expired: list[int] = field(default_factory=list)
    files: int = 0
    bytes: int = 0
    leftovers: int = 0
    problems: list[str] = field(default_factory=list)


def inactive_queries(store: Store, now: int | None = None) -> dict[int, str]:
    """Queries that are no longer active, and why: their outcome, or `lease gone`."""
    moment = now_ms() if now is None else now
    found: dict[int, str] = {}
    for query, ended in _queries(store).items():
        try:
            if ended:
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
) -> GcReport:
    """Remove stale attempts past the TTL, lost queries, expired steps and abandoned files."""
    if rule not in RULES:
        raise BadOption(f"rule={rule!r} is none of {', '.join(RULES)}", option="rule")
    if ttl_ms < 0 or (retention_ms or 0) < 0:
        raise BadOption("a time to live cannot be negative", option="ttl")
    report = GcReport(dry_run)
    sweep = _Sweep(store, ttl_ms, now_ms() if now is None else now, report)
    stored = attempts.numbers(store, layout.DATA)
    if _has_records(store):
        if rule == "ffq":
            message = "FFQ's rule could remove what a step has registered; this root has records"
            raise BadOption(message, option="rule")
        sweep.run(stored, retention_ms)
    else:
        # Only what was there before the format's record was not: a new exchange is none of these.
        choose = stale_by_ffq if rule == "ffq" else stale_without_records
        for id in choose(store, stored, ttl_ms, sweep.now, report.problems):
            sweep.remove(store.walk(id.directory), [id.directory])
    return report


def _has_records(store: Store) -> bool:
    # The format's record precedes all others, so it is looked for after them.
    opened = _queries(store)
    path = store.url(layout.FORMAT)
    format = Ledger(store).format()
    if format is not None:
        format.check_writer(path)
    elif opened:
        raise CorruptRecord("there are queries, and no record of the format", path=path)
    return format is not None


class _Sweep:
    """One pass over a root."""

    def __init__(self, store: Store, ttl_ms: int, now: int, report: GcReport) -> None:
        self._store = store
        self._ledger = Ledger(store)
        self._ttl_ms = ttl_ms
        self._report = report
        self._manifests: dict[int, int] = {}
        self.now = now

    def run(self, stored: Sequence[int], retention_ms: int | None) -> None:
        """Everything there is to do where there are records."""
        self._manifests = _manifests(self._store)
        # Records precede data, so they are listed after it: what was just begun is no orphan.
        opened = _queries(self._store)
        unfinished = {query for query, ended in opened.items() if not ended}
        for query in sorted({*stored, *self._manifests, *unfinished}):
            with self._reported(f"query {query}"):
                self._sweep(query, known=query in opened)
        if retention_ms is not None:
            with self._reported("the log"):
                self._expire(self.now - retention_ms)
        self._leftovers()

    @contextmanager
    def _reported(self, subject: str) -> Iterator[None]:
        """What fails is told, and stops nothing else."""
        try:
            yield
        except (FfqError, OSError) as error:
            self._report.problems.append(f"{subject}: {error}")

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
        if leases.is_active(self._store, record, self.now):
            return None
        if self._report.dry_run:
            self._report.fenced.append(query)
            return OutcomeRecord(query, Outcome.LOST, self.now, "")
        message = f"the lease of {record.initiator} is gone"
        outcome = self._ledger.end(query, Outcome.LOST, message, code="FFQ_LOST")
        # A commit that came first still needs its marker: it may not be published yet.
        if outcome.outcome is Outcome.LOST:
            self._store.delete(layout.pending(query))
            self._report.fenced.append(query)
        return outcome

    def _stale(self, outcome: OutcomeRecord) -> None:
        if outcome.step is None or not self._is_old(outcome.at_ms):
            return
        if _is_superseded(self._store, outcome.query, outcome.step):
            self._remove_query(outcome.query)
        else:
            _, others = attempts.split_registered(self._store, outcome.step)
            self.remove(others, attempts.directories(others))

    def _orphan(self, query: int) -> None:
        """Data of a query that nobody opened: its record precedes all that it writes."""
        made = query_time_ms(query)
        if not _EARLIEST_MS < made <= self.now:
            path = self._store.url(f"{layout.DATA}/{query}")
            self._report.problems.append(f"query {query}: not written by this product ({path})")
        elif self._is_old(made):
            self._remove_query(query)

    def _is_old(self, moment: int) -> bool:
        return moment + self._ttl_ms <= self.now

    def _remove_query(self, query: int) -> None:
        """All that a query without a step has left."""
        directory = f"{layout.DATA}/{query}"
        files = self._store.walk(directory)
        if query in self._manifests:
            files.append((layout.manifest(query), self._manifests[query]))
        self.remove(files, [directory])

    def _expire(self, before: int) -> None:
        steps = self._expirable(before)
        # The marker comes first: whoever then misses a file can say why, and who asks to hold a
        # step or to go back to it sees the marker, or is seen by the second look.
        if not self._report.dry_run:
            for step in steps:
                self._store.create_once(layout.expired(step.step), b"{}\n")
            marked = {step.step for step in steps}
            steps = [step for step in self._expirable(before) if step.step in marked]
        for step in steps:
            registered, _ = attempts.split_registered(self._store, step.body)
            self.remove(registered, attempts.directories(registered))
            # The manifest goes last: while it is there, the next collector finishes this work.
            self.remove([(step.body.manifest, step.body.manifest_bytes)], [])
            self._report.expired.append(step.step)

    def _expirable(self, before: int) -> list[StepRecord]:
        # Holds are looked at before the log: a rollback holds until the log has it.
        first = consumers.needed_from(self._store)
        steps = retention.expirable_steps(self._store, before)
        return [step for step in steps if first is None or step.step < first]

    def remove(self, files: Sequence[tuple[str, int]], directories: Sequence[str]) -> None:
        """Delete files, and what a file system keeps of their directories."""
        self._report.attempts += attempts.directories(files)
        self._report.files += len(files)
        self._report.bytes += sum(size for _, size in files)
        if not self._report.dry_run:
            self._store.delete_trees(directories, [path for path, _ in files])

    def _leftovers(self) -> None:
        """Temporary files and uploads that were never finished, leases of the dead."""
        before = self.now - max(self._ttl_ms, _LEFTOVER_MS)
        dry_run = self._report.dry_run
        with self._reported("leftovers"):
            self._report.leftovers += self._store.remove_leftovers(before, dry_run=dry_run)
        for entry in self._store.list(layout.LEASES):
            with self._reported(f"lease {entry.name}"):
                initiator = entry.name.removesuffix(".json")
                lease = leases.read(self._store, initiator)
                if lease and lease.expires_at_ms <= before:
                    self._report.leftovers += 1
                    if not dry_run:
                        leases.release(self._store, initiator)


def _is_superseded(store: Store, query: int, body: StepBody) -> bool:
    """Whether another run of its stream's batch became the step."""
    if body.stream is None:
        return False
    winner = batches.read(store, body.stream.stream, body.stream.epoch, body.stream.batch)
    return winner is not None and winner.query != query


def _queries(store: Store) -> dict[int, bool]:
    """Every query that was opened, and whether it has ended."""
    names = {entry.name for entry in store.list(layout.QUERIES)}
    numbers = (layout.parse_number(name.removesuffix(".json")) for name in names)
    return {number: f"{number}.outcome.json" in names for number in numbers if number is not None}


def _manifests(store: Store) -> dict[int, int]:
    """Query to the size of its manifest."""
    sizes = {
        entry.name.removesuffix(".arrow"): entry.size for entry in store.list(layout.MANIFESTS)
    }
    numbers = {layout.parse_number(name): size for name, size in sizes.items()}
    return {number: size for number, size in numbers.items() if number is not None}


def _record(store: Store, query: int) -> QueryRecord:
    path = layout.query(query)
    return QueryRecord.decode(store.read(path), store.url(path))
