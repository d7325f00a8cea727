"""The commit protocol: how a query ends, and how its step becomes visible.

Every decision is one record that is created once. A process may be killed between any two writes:
its query then never becomes visible, or the next reader (`roll_forward`) or writer
(`publish_pending`) publishes it.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from ffq_spark.errors import (
    AlreadyCommitted,
    BadOption,
    CommittedUnconfirmed,
    CommitUnknown,
    CorruptRecord,
    Fenced,
    FfqError,
    QueryExists,
    StoreFailed,
)
from ffq_spark.exchange.ledger import routing
from ffq_spark.exchange.ledger.claims import REFUSALS, create_claims
from ffq_spark.exchange.ledger.compatibility import agree_in_order
from ffq_spark.exchange.ledger.sealing import AttemptOutput, seal
from ffq_spark.exchange.ledger.step_log import StepLog
from ffq_spark.format import paths
from ffq_spark.format.ids import new_query, now_ms
from ffq_spark.format.records import (
    ExchangeRecord,
    FormatRecord,
    Offsets,
    Outcome,
    OutcomeRecord,
    OwnerRecord,
    QueryRecord,
    StepRecord,
    StreamBatch,
)
from ffq_spark.store import Store

MODES = ("append", "replace")
WAITS: Sequence[float] = (0.1, 0.5, 2.0)
"""Seconds to wait before each retry, once the outcome has been requested."""

logger = logging.getLogger(__name__)


class Ledger:
    """Begins, commits and aborts the queries of one exchange."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.log = StepLog(store)

    def exchange(self) -> ExchangeRecord | None:
        """Read the exchange's record, or return None before the first commit."""
        data = self._read_founding(paths.EXCHANGE)
        path = self._store.url(paths.EXCHANGE)
        return None if data is None else ExchangeRecord.decode(data, path)

    def format(self) -> FormatRecord | None:
        """Read the format's record, or return None for a root that this product never wrote to."""
        data = self._read_founding(paths.FORMAT)
        return None if data is None else FormatRecord.decode(data, self._store.url(paths.FORMAT))

    def _read_founding(self, path: str) -> bytes | None:
        """Read a record that precedes the first step: once steps exist, it must exist too."""
        data = self._store.read_optional(path)
        if data is None and self._store.list(paths.STEPS):
            data = self._store.read_optional(path)
            if data is None:
                raise CorruptRecord(
                    "the record is missing, but steps exist", path=self._store.url(path)
                )
        return data

    def begin(
        self,
        mode: str,
        initiator: str,
        *,
        stage: int = 0,
        query: int | None = None,
        lease_seconds: int = 0,
    ) -> QueryRecord:
        """Begin a query by creating its record, which must exist before its first part."""
        if mode not in MODES:
            raise BadOption(f"{mode!r} must be {' or '.join(MODES)}", option="mode")
        self.ensure_format()
        while True:
            number = new_query() if query is None else query
            record = QueryRecord(number, initiator, stage, mode, now_ms(), lease_seconds)
            if self._store.create_once(paths.query(number), record.encode()):
                return record
            if query is not None:
                path = self._store.url(paths.query(number))
                raise QueryExists(f"query {query} exists already", path=path)

    def open(self, record: QueryRecord) -> None:
        """Create the record of a query that is planned elsewhere; any of its tasks may be first."""
        data, path = record.encode(), paths.query(record.query)
        if not self._store.create_once(path, data) and self._store.read(path) != data:
            message = f"query {record.query} exists already, with another record"
            raise QueryExists(message, path=self._store.url(path))

    def ensure_format(self) -> None:
        """Create the format's record unless it exists, and check that this version may write."""
        path = self._store.url(paths.FORMAT)
        format = self.format()
        if format is None:
            proposal = FormatRecord(create_once=self._store.probe_create_once())
            self._store.create_once(paths.FORMAT, proposal.encode())
            format = self.format() or proposal
        format.check_writer(path)

    def commit(
        self,
        query: QueryRecord,
        proposal: ExchangeRecord,
        outputs: Sequence[AttemptOutput],
        stats: Sequence[pa.Field] = (),
        *,
        batch: StreamBatch | None = None,
        owner: OwnerRecord | None = None,
        offsets: Offsets | None = None,
        restores: int = 0,
        sort_by: tuple[str, ...] = (),
    ) -> StepRecord:
        """Commit a query's output as the next step.

        Whatever was committed before comes before it in the log, or the commit fails. The attribute
        `rows` of an error says what becomes of the rows. The outcome's record is the point of no
        return: after it, no error says that the write failed.
        """
        self.publish_pending()
        body, data = seal(query, outputs, stats)
        body = replace(
            body,
            stream=batch,
            offsets=offsets,
            restores=restores,
            sort_by=sort_by,
            partitions=proposal.partitions,
        )
        if not self._store.create_once(body.manifest, data):
            reason = Fenced(
                "another commit of this query wrote another manifest", path=body.manifest
            )
            raise self._refused(query.query, self.settle(query.query, reason))
        exchange = self.exchange()
        if exchange is not None:
            agree_in_order(self._as_written(exchange, proposal), proposal, self._store.url())
        record = OutcomeRecord(
            query=query.query,
            outcome=Outcome.COMMITTED,
            at_ms=now_ms(),
            nonce=secrets.token_hex(8),
            after=self.log.last_number(),
            step=body,
            exchange=proposal if exchange is None else None,
            owner=owner,
        )
        self._store.create_once(paths.pending(query.query), b"{}\n")
        self._decide(record)
        return self.confirm(record)

    def _as_written(self, exchange: ExchangeRecord, proposal: ExchangeRecord) -> ExchangeRecord:
        """Return the exchange with the proposal's number of partitions, if it ever had it."""
        if exchange.partitions == proposal.partitions:
            return exchange
        known = routing.partition_counts(self._store, exchange)
        count = proposal.partitions if proposal.partitions in known else exchange.partitions
        return replace(exchange, partitions=count)

    def _decide(self, record: OutcomeRecord) -> None:
        """Create the outcome, or raise an error once it is certain that this one never will be."""
        path = paths.outcome(record.query)
        failure: FfqError | None = None
        try:
            if self._store.create_once(path, record.encode()):
                return
            ended = self.outcome(record.query)
        except FfqError as error:
            # The request may have reached storage, or may reach it yet.
            failure, ended = error, self.settle(record.query, error)
        if ended is not None and ended.nonce == record.nonce:
            return
        raise self._refused(record.query, ended, failure)

    def _refused(
        self, query: int, ended: OutcomeRecord | None, failure: FfqError | None = None
    ) -> FfqError:
        """Return the error of a commit whose query has ended in another way."""
        if ended is not None and ended.outcome is Outcome.COMMITTED:
            self.confirm(ended)
            return AlreadyCommitted(f"another commit of query {query} came first")
        if failure is not None:
            return failure
        how = ended.outcome.value if ended else "unknown"
        path = self._store.url(paths.outcome(query))
        return Fenced(f"query {query} has ended already as {how}", path=path)

    def settle(self, query: int, error: FfqError) -> OutcomeRecord:
        """End a query as aborted after storage failed, unless it has ended; return its outcome.

        Only then can the error of a failed commit say that its rows never become visible.
        """
        for wait in (*WAITS, None):
            try:
                return self.end(query, Outcome.ABORTED, str(error), code=error.code)
            except FfqError:
                if wait is not None:
                    time.sleep(wait)
        raise CommitUnknown(f"query {query}: {error.message}", path=error.path) from error

    def confirm(self, outcome: OutcomeRecord) -> StepRecord:
        """Publish the step of a committed query, with retries where storage fails."""
        claimed = False
        for wait in (*WAITS, None):
            try:
                create_claims(self._store, outcome)
                claimed = True
                step = self.log.publish(outcome)
                break
            except REFUSALS:
                self._drop_marker(outcome.query)
                raise
            except (FfqError, OSError) as error:
                if wait is None:
                    raise _unconfirmed(outcome, error, claimed=claimed) from error
                time.sleep(wait)
        self._drop_marker(outcome.query)
        self.log.condense(step.step)
        return step

    def _drop_marker(self, query: int) -> None:
        """Delete the marker of a finished commit. A marker that stays only costs readers time."""
        try:
            self._store.delete(paths.pending(query))
        except StoreFailed as error:
            logger.info("the marker of query %d stays: %s", query, error)

    def outcome(self, query: int) -> OutcomeRecord | None:
        """Read how a query ended, or return None while it is unfinished."""
        path = paths.outcome(query)
        data = self._store.read_optional(path)
        return None if data is None else OutcomeRecord.decode(data, self._store.url(path))

    def end(
        self, query: int, outcome: Outcome, message: str, *, code: str = "", who: str = ""
    ) -> OutcomeRecord:
        """End a query without a step, unless it has ended; return its outcome in either case."""
        nonce = secrets.token_hex(8)
        record = OutcomeRecord(query, outcome, now_ms(), nonce, message, code, who)
        if self._store.create_once(paths.outcome(query), record.encode()):
            return record
        ended = self.outcome(query)
        if ended is None:
            path = self._store.url(paths.outcome(query))
            raise CorruptRecord("the outcome exists but cannot be read", path=path)
        return ended

    def give_up(self, query: int, error: BaseException) -> OutcomeRecord | None:
        """End the query of a failed write; return None if storage fails too.

        An error of storage is only logged, so that it does not hide the error of the write.
        """
        try:
            return self.end(query, Outcome.ABORTED, f"{type(error).__name__}: {error}")
        except FfqError as failure:
            logger.warning("the end of query %d is not recorded: %s", query, failure)
            return None

    def publish_pending(self) -> int:
        """Publish the steps of committed queries that have none yet; return their number.

        A writer does so before its own commit. It fails if it cannot, because its step would
        otherwise come before steps that were committed earlier.
        """
        return sum(self._publish_pending(outcome) for outcome in self._pending())

    def roll_forward(self) -> int:
        """Publish the steps of committed queries whose processes died; return their number.

        A reader without the permission to write reads the published steps only.
        """
        published = 0
        for outcome in self._pending():
            try:
                published += self._publish_pending(outcome)
            except StoreFailed as error:
                logger.warning("query %d stays unpublished: %s", outcome.query, error)
                break
        return published

    def _pending(self) -> list[OutcomeRecord]:
        """Return the outcomes of queries whose commit is under way, in the order of the commits."""
        names = (entry.name.removesuffix(".json") for entry in self._store.list(paths.PENDING))
        queries = [query for name in names if (query := paths.parse_number(name)) is not None]
        ended = [outcome for query in queries if (outcome := self.outcome(query)) is not None]
        return sorted(ended, key=lambda outcome: (outcome.after, outcome.at_ms, outcome.query))

    def _publish_pending(self, outcome: OutcomeRecord) -> bool:
        """Publish the step of a query, if it is committed, and delete its marker."""
        published = False
        try:
            if outcome.outcome is Outcome.COMMITTED:
                create_claims(self._store, outcome)
                self.log.condense(self.log.publish(outcome).step)
                published = True
        except REFUSALS as error:
            logger.info("query %d has no step: %s", outcome.query, error)
        self._drop_marker(outcome.query)
        return published


def _unconfirmed(outcome: OutcomeRecord, error: Exception, *, claimed: bool) -> FfqError:
    """Return the error of a committed query whose step could not be published."""
    message = getattr(error, "message", str(error))
    path = getattr(error, "path", None)
    has_claims = outcome.exchange is not None or (outcome.step and outcome.step.stream)
    if claimed or not has_claims:
        return CommittedUnconfirmed(f"query {outcome.query} has no step yet: {message}", path=path)
    # Another first write, or another run of the batch, may have come first.
    return CommitUnknown(f"query {outcome.query} is committed, not claimed: {message}", path=path)
