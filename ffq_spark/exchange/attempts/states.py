"""Every attempt there is: what storage holds, what the records say, what the listener saw."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ffq_spark.errors import CorruptIndex
from ffq_spark.exchange.attempts import stored
from ffq_spark.exchange.attempts.task_log import AttemptLog, SparkTask, read_logs
from ffq_spark.exchange.ledger.claims import Claim, standing
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.format import paths
from ffq_spark.format.paths import AttemptId
from ffq_spark.format.records import Outcome, OutcomeRecord
from ffq_spark.store import Store


@dataclass(frozen=True)
class AttemptState:
    """One attempt.

    `state` is what storage decides: `registered` counts, `stale` lost, `pending` may still win,
    `orphan` has no query record, `absent` left no directory; on a root without records the one
    that counts is `latest`. `complete` means that it has an index; `rows` and `bytes` are what that
    says. `task` is what Spark's scheduler saw, if the listener was there: it never decides.
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
    """All attempts of all queries, or of one, ascending."""
    ledger = Ledger(store)
    recorded = ledger.format() is not None
    logs = read_logs(store, query) if recorded else {}
    there = set(stored.numbers(store, paths.DATA)) | set(logs)
    for number in sorted(there if query is None else there & {query}):
        states = list(_stored(store, ledger, number, recorded))
        yield from sorted(_explained(states, logs.get(number), number), key=_order)


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
        yield _counted(store, id, state)


def _registered(store: Store, outcome: OutcomeRecord, stage: int) -> dict[int, int]:
    """Map task to attempt of the query's step; empty if it has none in this stage."""
    step = outcome.step if outcome.outcome is Outcome.COMMITTED else None
    if step is None or step.stage != stage or standing(store, outcome) is Claim.LOST:
        return {}
    return step.attempts


def _unrecorded(store: Store, ids: Sequence[AttemptId]) -> Iterator[AttemptState]:
    states = [_counted(store, id, "stale") for id in ids]
    latest = {state.map_task: state.attempt for state in states if state.complete}
    for state in states:
        counts = latest.get(state.map_task) == state.attempt
        yield replace(state, state="latest") if counts else state


def _counted(store: Store, id: AttemptId, state: str) -> AttemptState:
    """An attempt with what its index says; one that cannot be read is not complete."""
    try:
        index = stored.read_index(store, id)
    except CorruptIndex:
        index = None
    if index is None:
        return AttemptState(*id, state)
    rows, size = (sum(getattr(e, name) for e in index.entries) for name in ("rows", "bytes"))
    return AttemptState(*id, state, True, rows, size)


def _explained(
    states: list[AttemptState], log: AttemptLog | None, query: int
) -> Iterator[AttemptState]:
    if log is None:
        yield from states
        return
    for state in states:
        yield replace(state, task=log.tasks.get(state.attempt - 1))
    there = {state.attempt for state in states}
    stage = log.write_stage([state.attempt for state in states])
    for task in log.tasks.values():
        if task.stage == stage and task.attempt not in there:
            number = states[0].stage if states else 0
            id = AttemptId(query, number, task.map_task, task.attempt)
            yield AttemptState(*id, "absent", task=task)
