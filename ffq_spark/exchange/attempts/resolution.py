"""Decide which attempt of each map task counts, and why.

Where the query has a step, the attempts that the step names count, and no other may be read.
Without a step (a root that FFQ wrote, a query that has not committed or has lost its claims) the
largest complete attempt of each map task counts. An attempt is complete once it has an index, which
is written last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from ffq_spark.errors import BadOption, CorruptIndex, NoAttempts, NotRegistered
from ffq_spark.exchange.attempts import stored
from ffq_spark.exchange.ledger.claims import claimed_step
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.format import paths
from ffq_spark.format.index import MapTaskIndex
from ffq_spark.format.paths import AttemptId
from ffq_spark.format.records import StepBody
from ffq_spark.store import Store

RULES = ("registered", "ffq")

_ANY = ("registered", "latest")
OnDamage = Callable[[CorruptIndex], None]


@dataclass(frozen=True)
class Resolved:
    """The attempt of a map task that counts, and the reason."""

    attempt: int
    why: str


@dataclass(frozen=True)
class StageAttempts:
    """The attempts of one stage of a query; `registered` is None if the query has no step."""

    store: Store
    query: int
    stage: int
    registered: Mapping[int, int] | None

    @classmethod
    def of(cls, store: Store, query: int, stage: int, step: StepBody | None) -> StageAttempts:
        """Take the registered attempts from the step; it has none in another stage than its own."""
        if step is None:
            return cls(store, query, stage, None)
        return cls(store, query, stage, step.attempts if stage == step.stage else {})

    @classmethod
    def read(cls, store: Store, query: int, stage: int) -> StageAttempts:
        """Read which attempts the query's step registers."""
        step = claimed_step(store, Ledger(store).outcome(query))
        return cls.of(store, query, stage, step)

    def number(self, map_task: int) -> int:
        """Return the attempt that counts. Incomplete attempts are skipped."""
        if self.registered is None:
            return self._complete(self._stored(map_task), map_task, "latest").id.attempt
        if map_task not in self.registered:
            raise self._no_attempts(map_task)
        return self.registered[map_task]

    def index(self, map_task: int, attempt: str = "registered") -> MapTaskIndex:
        """Read the index of the attempt that counts, or refuse another one that was asked for."""
        if self.registered is None:
            return self._complete(self._stored(map_task), map_task, attempt)
        if map_task not in self.registered:
            raise self._no_attempts(map_task)
        number = self.registered[map_task]
        id = AttemptId(self.query, self.stage, map_task, number)
        if attempt not in (*_ANY, str(number)):
            raise self._not_registered(id._replace(attempt=int(attempt)).directory)
        index = stored.read_index(self.store, id)
        if index is None:
            path = self.store.url(id.directory)
            raise CorruptIndex("the index of a registered attempt is missing", path=path)
        return index

    def indexes(self, attempt: str = "registered") -> list[MapTaskIndex]:
        """Read the index of the attempt that counts for every map task."""
        if self.registered is not None:
            return [self.index(map_task, attempt) for map_task in self.registered]
        ids = stored.stored_attempts(self.store, self.query, self.stage)
        indexes = [
            self._complete(list(own), map_task, attempt)
            for map_task, own in groupby(ids, lambda id: id.map_task)
        ]
        if not indexes:
            raise self._no_attempts()
        return indexes

    def _stored(self, map_task: int) -> list[AttemptId]:
        return list(stored.stored_attempts(self.store, self.query, self.stage, map_task))

    def _complete(self, ids: Sequence[AttemptId], map_task: int, attempt: str) -> MapTaskIndex:
        chosen = [id for id in ids if attempt in (*_ANY, str(id.attempt))]
        for index in complete_attempts(self.store, chosen):
            return index
        if attempt in _ANY or not ids:
            raise self._no_attempts(map_task)
        raise self._not_registered(ids[0].directory.rpartition("/")[0])

    def _no_attempts(self, map_task: int | None = None) -> NoAttempts:
        directory = f"{paths.DATA}/{self.query}/{self.stage}"
        path = self.store.url(directory if map_task is None else f"{directory}/{map_task}")
        return NoAttempts("no shuffle attempts found for map task", path=path)

    def _not_registered(self, directory: str) -> NotRegistered:
        message = "map output not registered for requested attempt"
        return NotRegistered(message, path=self.store.url(directory))


def complete_attempts(
    store: Store, ids: Sequence[AttemptId], on_damage: OnDamage | None = None
) -> Iterator[MapTaskIndex]:
    """Read the indexes of a map task's complete attempts, the largest attempt first.

    `ids` must ascend. Raise an error for a damaged index, or pass it to `on_damage` and continue.
    """
    for id in reversed(ids):
        try:
            index = stored.read_index(store, id)
        except CorruptIndex as error:
            if on_damage is None:
                raise
            on_damage(error)
            continue
        if index is not None:
            yield index


def available_attempts(store: Store, query: int, stage: int, map_task: int) -> list[int]:
    """List every attempt directory of a map task, ascending, whatever its state."""
    return [id.attempt for id in stored.stored_attempts(store, query, stage, map_task)]


def latest_attempt(
    store: Store, query: int, stage: int, map_task: int, rule: str = "registered"
) -> int:
    """Return the attempt that counts: registered, else the largest complete one.

    A damaged index is an error, as in a read. `rule="ffq"` gives the largest number, complete or
    not, as FFQ does.
    """
    check_rule(rule)
    if rule == "registered":
        return StageAttempts.read(store, query, stage).number(map_task)
    available = available_attempts(store, query, stage, map_task)
    if not available:
        path = store.url(f"{paths.DATA}/{query}/{stage}/{map_task}")
        raise NoAttempts("no shuffle attempts found for map task", path=path)
    return available[-1]


def resolve(
    store: Store, query: int, stage: int | None = None, rule: str = "registered"
) -> dict[int, Resolved]:
    """Map each map task to the attempt that counts; a map task without one is left out."""
    check_rule(rule)
    query, stage = stored.choose_stage(store, query, stage)
    attempts = StageAttempts.read(store, query, stage)
    if rule == "registered" and attempts.registered is not None:
        return {m: Resolved(a, "named by the step record") for m, a in attempts.registered.items()}
    why = "largest number" if rule == "ffq" else "largest complete attempt; no step names one"
    resolved = {}
    for map_task in stored.numbers(store, f"{paths.DATA}/{query}/{stage}"):
        try:
            number = latest_attempt(store, query, stage, map_task, rule)
        except NoAttempts:
            continue
        resolved[map_task] = Resolved(number, why)
    return resolved


def check_rule(rule: str) -> None:
    """Refuse a rule other than "registered" and "ffq"."""
    if rule not in RULES:
        raise BadOption(f"rule={rule!r} must be one of: {', '.join(RULES)}", option="rule")
