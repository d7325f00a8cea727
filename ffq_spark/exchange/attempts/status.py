"""The status of queries, in FFQ's five states, derived from records on storage."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ffq_spark.errors import QueryNotFound
from ffq_spark.exchange.attempts import stored
from ffq_spark.exchange.attempts.task_log import TaskLog, read_logs
from ffq_spark.exchange.ledger.cancel import read_cancel
from ffq_spark.exchange.ledger.claims import Claim, claim_state
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.format import paths
from ffq_spark.format.records import Outcome, OutcomeRecord, QueryRecord
from ffq_spark.shared_names import TaskState
from ffq_spark.store import Store


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
    """Read the status of one query."""
    data = store.read_optional(paths.query(query))
    if data is None:
        raise QueryNotFound(f"there is no query {query}", path=store.url(paths.QUERIES))
    record = QueryRecord.decode(data, store.url(paths.query(query)))
    return _status(store, record, Ledger(store).outcome(query), read_logs(store, query).get(query))


def all_statuses(store: Store) -> list[QueryStatus]:
    """Read the status of all queries that have a record, oldest first."""
    names = (entry.name.removesuffix(".json") for entry in store.list(paths.QUERIES))
    numbers = sorted(n for n in map(paths.parse_number, names) if n is not None)
    logs = read_logs(store)
    opened = store.read_many([paths.query(number) for number in numbers])
    ended = store.read_many([paths.outcome(number) for number in numbers])
    statuses = []
    for number, query, end in zip(numbers, opened, ended, strict=True):
        if query is not None:
            record = QueryRecord.decode(query, store.url(paths.query(number)))
            outcome = OutcomeRecord.decode(end, store.url(paths.outcome(number))) if end else None
            statuses.append(_status(store, record, outcome, logs.get(number)))
    return statuses


def _status(
    store: Store, record: QueryRecord, outcome: OutcomeRecord | None, log: TaskLog | None
) -> QueryStatus:
    state, message = _state(store, record, outcome, log)
    done, total = _tasks(outcome, log)
    ended = outcome.at_ms if outcome else None
    return QueryStatus(
        record.query, record.initiator, state, message, record.created_at_ms, ended, done, total
    )


def _state(
    store: Store, record: QueryRecord, outcome: OutcomeRecord | None, log: TaskLog | None
) -> tuple[QueryState, str]:
    if outcome is not None:
        if outcome.exchange is not None and claim_state(store, outcome) is Claim.LOST:
            return (
                QueryState.FAILED,
                "another first write created an exchange with different columns or keys",
            )
        return _TERMINAL[outcome.outcome], outcome.message
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
