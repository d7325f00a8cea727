"""Which attempt of each map task counts, and why."""

from __future__ import annotations

from dataclasses import dataclass

from ffq_spark.errors import BadOption, CorruptIndex, NoAttempts, NotRegistered
from ffq_spark.exchange.attempts import stored
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.format import paths
from ffq_spark.format.paths import AttemptId
from ffq_spark.store import Store

RULES = ("registered", "ffq")


@dataclass(frozen=True)
class Resolved:
    """The attempt of a map task, and the reason it is the one."""

    attempt: int
    why: str


def available_attempts(store: Store, query: int, stage: int, map_task: int) -> list[int]:
    """Every attempt directory of a map task, ascending, whatever its state."""
    return [id.attempt for id in stored.stored_attempts(store, query, stage, map_task)]


def latest_attempt(
    store: Store, query: int, stage: int, map_task: int, rule: str = "registered"
) -> int:
    """The attempt that counts: registered, else the largest complete one.

    `rule="ffq"` gives the largest number, complete or not, as FFQ does.
    """
    _check_rule(rule)
    available = available_attempts(store, query, stage, map_task)
    path = store.url(f"{paths.DATA}/{query}/{stage}/{map_task}")
    if rule == "ffq":
        if not available:
            raise NoAttempts("no shuffle attempts found for map task", path=path)
        return available[-1]
    registered = registered_attempts(store, query, stage)
    if registered is not None:
        if map_task not in registered:
            raise NoAttempts("no shuffle attempts found for map task", path=path)
        return registered[map_task]
    for attempt in reversed(available):
        if _is_complete(store, AttemptId(query, stage, map_task, attempt)):
            return attempt
    raise NoAttempts("no shuffle attempts found for map task", path=path)


def registered_attempts(store: Store, query: int, stage: int) -> dict[int, int] | None:
    """What the query's step names in a stage, or None where there is no step."""
    outcome = Ledger(store).outcome(query)
    if outcome is None or outcome.step is None:
        return None
    return outcome.step.attempts if stage == outcome.step.stage else {}


def resolve(
    store: Store, query: int, stage: int | None = None, rule: str = "registered"
) -> dict[int, Resolved]:
    """Map task to the attempt that counts; a map task without one is left out."""
    _check_rule(rule)
    query, stage = stored.choose_stage(store, query, stage)
    registered = None if rule == "ffq" else registered_attempts(store, query, stage)
    if registered is not None:
        return {m: Resolved(a, "named by the step record") for m, a in registered.items()}
    found = {}
    for map_task in stored.numbers(store, f"{paths.DATA}/{query}/{stage}"):
        try:
            attempt = latest_attempt(store, query, stage, map_task, rule)
        except NoAttempts:
            continue
        why = "largest number" if rule == "ffq" else "largest complete attempt; no step names one"
        found[map_task] = Resolved(attempt, why)
    return found


def require_registered(store: Store, id: AttemptId) -> None:
    """Refuse an attempt that a step exists for and does not name."""
    registered = registered_attempts(store, id.query, id.stage)
    if registered is not None and registered.get(id.map_task) != id.attempt:
        path = store.url(id.directory)
        raise NotRegistered("map output not registered for requested attempt", path=path)


def _check_rule(rule: str) -> None:
    if rule not in RULES:
        raise BadOption(f"rule={rule!r} is none of {', '.join(RULES)}", option="rule")


def _is_complete(store: Store, id: AttemptId) -> bool:
    try:
        return stored.read_index(store, id) is not None
    except CorruptIndex:
        return False
