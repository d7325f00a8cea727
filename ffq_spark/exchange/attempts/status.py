"""The status of queries, in FFQ's five states, derived from records on storage."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from enum import Enum

from ffq_spark.errors import FfqError, QueryNotFound
from ffq_spark.exchange.attempts import stored
from ffq_spark.exchange.attempts.task_log import TaskLog, read_logs
from ffq_spark.exchange.ledger import stream_records
from ffq_spark.exchange.ledger.cancel import read_cancel
from ffq_spark.exchange.ledger.claims import Claim, claim_state
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.format import paths
from ffq_spark.format.records import Outcome, OutcomeRecord, QueryRecord
from ffq_spark.shared_names import TaskState
from ffq_spark.store import Store

logger = logging.getLogger(__name__)


class QueryState(Enum):
    """The states of a query, with FFQ's numbers; the last three are final."""

    QUEUED = 1
    RUNNING = 2
    SUCCEEDED = 3
    FAILED = 4
    CANCELED = 5


_TERMINAL = {
    Outcome.COMMITTED: QueryState.SUCCEEDED,
    Outcome.ABORTED: QueryState.FAILED,
    Outcome.LOST: QueryState.FAILED,
    Outcome.CANCELED: QueryState.CANCELED,
}


_UNPUBLISHED = (
    "committed, but not published: the next read or write publishes it, unless another first write "
    "or another run of its batch comes first"
)


@dataclass(frozen=True)
class QueryStatus:
    """The state, times and task counts of one query; the counts are None without a listener."""

    query: int
    initiator: str
    state: QueryState
    message: str
    started_at_ms: int
    ended_at_ms: int | None
    tasks_done: int | None
    tasks_total: int | None


def query_status(store: Store, query: int) -> QueryStatus:
    """Read the status of one query; first complete its commit if that was interrupted."""
    data = store.read_optional(paths.query(query))
    if data is None:
        raise QueryNotFound(f"there is no query {query}", path=store.url(paths.QUERIES))
    record = QueryRecord.decode(data, store.url(paths.query(query)))
    ledger = Ledger(store)
    outcome = ledger.outcome(query)
    if outcome is not None:
        _complete_commit(store, ledger, outcome)
    claim = claim_state(store, outcome) if outcome else Claim.WON
    return _status(store, record, outcome, claim, read_logs(store, query).get(query))


def _complete_commit(store: Store, ledger: Ledger, outcome: OutcomeRecord) -> None:
    """Publish a committed query that has no step yet: only then is its state final."""
    if outcome.outcome is not Outcome.COMMITTED:
        return
    if store.read_optional(paths.pending(outcome.query)) is None:
        return
    try:
        ledger.roll_forward()
    except FfqError as error:
        logger.warning("the commit of query %d is not complete: %s", outcome.query, error)


def all_statuses(store: Store) -> list[QueryStatus]:
    """Read the status of all queries that have a record, oldest first."""
    names = (entry.name.removesuffix(".json") for entry in store.list(paths.QUERIES))
    numbers = sorted(n for n in map(paths.parse_number, names) if n is not None)
    logs = read_logs(store)
    opened = store.read_many([paths.query(number) for number in numbers])
    ended = store.read_many([paths.outcome(number) for number in numbers])
    outcomes = {
        number: OutcomeRecord.decode(data, store.url(paths.outcome(number)))
        for number, data in zip(numbers, ended, strict=True)
        if data is not None
    }
    claimants = [outcome for outcome in outcomes.values() if _has_claims(outcome)]
    states = store.read_each(lambda outcome: claim_state(store, outcome), claimants)
    claims = {outcome.query: claim for outcome, claim in zip(claimants, states, strict=True)}
    statuses = []
    for number, query in zip(numbers, opened, strict=True):
        if query is not None:
            record = QueryRecord.decode(query, store.url(paths.query(number)))
            outcome, claim = outcomes.get(number), claims.get(number, Claim.WON)
            statuses.append(_status(store, record, outcome, claim, logs.get(number)))
    return statuses


def _has_claims(outcome: OutcomeRecord) -> bool:
    is_batch = outcome.step is not None and outcome.step.stream is not None
    return outcome.exchange is not None or is_batch


def _status(
    store: Store,
    record: QueryRecord,
    outcome: OutcomeRecord | None,
    claim: Claim,
    log: TaskLog | None,
) -> QueryStatus:
    if outcome is None:
        state, message = _unfinished_state(store, record, log)
    elif claim is Claim.WON:
        state, message = _TERMINAL[outcome.outcome], outcome.message
    elif claim is Claim.LOST:
        state, message = QueryState.FAILED, _lost_claim(store, outcome)
    else:
        state, message = QueryState.RUNNING, _UNPUBLISHED
    done, total = _tasks(outcome, log)
    ended = outcome.at_ms if outcome and state in _TERMINAL.values() else None
    return QueryStatus(
        record.query, record.initiator, state, message, record.created_at_ms, ended, done, total
    )


def _lost_claim(store: Store, outcome: OutcomeRecord) -> str:
    """Describe which claim a committed query lost, so that it has no step."""
    batch = outcome.step.stream if outcome.step else None
    first_write = replace(outcome, step=None, owner=None)
    if batch is None or claim_state(store, first_write) is Claim.LOST:
        return "another first write created an exchange with different columns or keys"
    winner = stream_records.read(store, batch.stream, batch.epoch, batch.batch)
    if winner is None or winner.is_seal:
        return f"another owner took stream {batch.stream} over"
    return f"another run of batch {batch.batch} came first"


def _unfinished_state(
    store: Store, record: QueryRecord, log: TaskLog | None
) -> tuple[QueryState, str]:
    request = read_cancel(store, record.query)
    message = f"cancel requested by {request.who}: {request.message}" if request else ""
    busy = (log and log.tasks) or stored.numbers(store, f"{paths.DATA}/{record.query}")
    return (QueryState.RUNNING if busy else QueryState.QUEUED), message


def _tasks(outcome: OutcomeRecord | None, log: TaskLog | None) -> tuple[int | None, int | None]:
    if outcome is not None and outcome.step is not None:
        count = len(outcome.step.attempts)
        return count, count
    if log is None or not log.totals:
        return None, None
    stage = log.write_stage([])
    tasks = [task for task in log.tasks.values() if task.stage == stage]
    done = {task.map_task for task in tasks if task.state == TaskState.SUCCESS}
    return len(done), log.totals[stage] if stage is not None else None
