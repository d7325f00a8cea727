"""The states of all attempts, from storage, records and the log of Spark's listener."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ffq_spark.errors import CorruptIndex
from ffq_spark.exchange.attempts import stored
from ffq_spark.exchange.attempts.task_log import SparkTask, TaskLog, read_logs
from ffq_spark.exchange.ledger.claims import Claim, claim_state
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.format import paths
from ffq_spark.format.paths import AttemptId
from ffq_spark.format.records import Outcome, OutcomeRecord
from ffq_spark.store import Store


@dataclass(frozen=True)
class AttemptState:
    """One attempt of a map task.

    `state` follows from storage alone: `registered` by a step, `stale` (not registered), `pending`
    (its query has no outcome), `orphan` (no query record) or `absent` (no directory). On a root
    without records the attempt that counts is `latest`. `complete` means that it has an index,
    which gives `rows` and `bytes`. `task` is what Spark's scheduler reported to the plugin's
    listener, or None without the plugin; it does not affect `state`.
    """

    query: int
    stage: int
    map_task: int
    attempt: int
    state: str
    complete: bool = False
    rows: int | None = None
    bytes: int | None = None
    task: SparkTask | None = None


def attempt_states(store: Store, query: int | None = None) -> Iterator[AttemptState]:
    """Yield the attempts of all queries, or of one, in ascending order."""
    ledger = Ledger(store)
    recorded = ledger.format() is not None
    logs = read_logs(store, query) if recorded else {}
    queries = set(stored.numbers(store, paths.DATA)) | set(logs)
    for number in sorted(queries if query is None else queries & {query}):
        states = list(_stored(store, ledger, number, recorded))
        yield from sorted(_with_tasks(states, logs.get(number), number), key=_order)


def _order(state: AttemptState) -> tuple[int, int, int]:
    return state.stage, state.map_task, state.attempt


def _stored(store: Store, ledger: Ledger, query: int, recorded: bool) -> Iterator[AttemptState]:
    for stage in stored.numbers(store, f"{paths.DATA}/{query}"):
        ids = list(stored.stored_attempts(store, query, stage))
        yield from _recorded(store, ledger, ids) if recorded else _unrecorded(store, ids)


def _recorded(store: Store, ledger: Ledger, ids: Sequence[AttemptId]) -> Iterator[AttemptState]:
    if not ids:
        return
    query, stage = ids[0].query, ids[0].stage
    outcome = ledger.outcome(query)
    known = store.read_optional(paths.query(query)) is not None
    registered = _registered(store, outcome, stage) if outcome else {}
    for id in ids:
        if registered.get(id.map_task) == id.attempt:
            state = "registered"
        elif outcome is not None:
            state = "stale"
        else:
            state = "pending" if known else "orphan"
        yield _with_index(store, id, state)


def _registered(store: Store, outcome: OutcomeRecord, stage: int) -> dict[int, int]:
    """Map the map tasks of a stage to their registered attempts; empty without a valid step."""
    step = outcome.step if outcome.outcome is Outcome.COMMITTED else None
    if step is None or step.stage != stage or claim_state(store, outcome) is Claim.LOST:
        return {}
    return step.attempts


def _unrecorded(store: Store, ids: Sequence[AttemptId]) -> Iterator[AttemptState]:
    states = [_with_index(store, id, "stale") for id in ids]
    latest = {state.map_task: state.attempt for state in states if state.complete}
    for state in states:
        counts = latest.get(state.map_task) == state.attempt
        yield replace(state, state="latest") if counts else state


def _with_index(store: Store, id: AttemptId, state: str) -> AttemptState:
    """Describe an attempt with the rows and bytes of its index; a damaged index counts as none."""
    try:
        index = stored.read_index(store, id)
    except CorruptIndex:
        index = None
    if index is None:
        return AttemptState(*id, state)
    rows, size = (sum(getattr(e, name) for e in index.entries) for name in ("rows", "bytes"))
    return AttemptState(*id, state, True, rows, size)


def _with_tasks(
    states: list[AttemptState], log: TaskLog | None, query: int
) -> Iterator[AttemptState]:
    if log is None:
        yield from states
        return
    for state in states:
        yield replace(state, task=log.tasks.get(state.attempt - 1))
    on_storage = {state.attempt for state in states}
    stage = log.write_stage([state.attempt for state in states])
    for task in log.tasks.values():
        if task.stage == stage and task.attempt not in on_storage:
            number = states[0].stage if states else 0
            id = AttemptId(query, number, task.map_task, task.attempt)
            yield AttemptState(*id, "absent", task=task)
