"""The step log: the only truth that readers follow.

Step records are never deleted, so a number is never used twice, and whoever publishes a query
only has to walk upwards from the newest step that existed before the query's outcome.
"""

from __future__ import annotations

from collections.abc import Sequence

from ffq_spark.errors import CorruptRecord, StepExpired, StepNotFound
from ffq_spark.format import layout
from ffq_spark.format.records import OutcomeRecord, StepBody, StepRecord
from ffq_spark.store import Store


class StepLog:
    """The numbered steps of one exchange.

    >>> StepLog(Store("memory://doc-log")).last_number()
    0
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def numbers(self) -> list[int]:
        """All step numbers, ascending; a hole in the log is an error."""
        names = (layout.parse_step(entry.name) for entry in self._store.list(layout.STEPS))
        listed = {number for number in names if number is not None}
        numbers = list(range(1, max(listed, default=0) + 1))
        if len(listed) != len(numbers):
            # A listing that was read while steps were added may miss one that a later page shows.
            self.read_many([number for number in numbers if number not in listed])
        return numbers

    def last_number(self) -> int:
        """The newest step, or 0."""
        return max(self.numbers(), default=0)

    def read(self, number: int) -> StepRecord:
        """One step's record."""
        return self.read_many([number])[0]

    def read_many(self, numbers: Sequence[int]) -> list[StepRecord]:
        """The records of these steps, in their order."""
        found = self._store.read_many([layout.step(number) for number in numbers])
        return [self._decode(n, data) for n, data in zip(numbers, found, strict=True)]

    def visible(self, number: int) -> list[StepRecord]:
        """A step and the earlier ones that are visible together with it, oldest first."""
        newest = self.read(number)
        steps = [*self.read_many(range(newest.base, number)), newest]
        for step in steps:
            if step.base != newest.base:
                begin = f"it begins at step {newest.base}, step {step.step} at {step.base}"
                raise CorruptRecord(begin, path=self._store.url(layout.step(number)))
        return steps

    def _decode(self, number: int, data: bytes | None) -> StepRecord:
        path = layout.step(number)
        if data is None:
            raise StepNotFound(f"there is no step {number}", path=self._store.url(path))
        record = StepRecord.decode(data, self._store.url(path))
        if record.step != number:
            message = f"the record says step {record.step}"
            raise CorruptRecord(message, path=self._store.url(path))
        return record

    def find(self, outcome: OutcomeRecord) -> StepRecord | None:
        """The step of a committed query, or None while it has none."""
        number = outcome.after
        while (data := self._store.read_optional(layout.step(number := number + 1))) is not None:
            record = self._decode(number, data)
            if record.body.query == outcome.query:
                return record
        return None

    def refuse_expired(self, number: int) -> None:
        """Say of a step whose files are missing that they were removed, if they were."""
        path = layout.expired(number)
        if self._store.read_optional(path) is not None:
            message = f"the data of step {number} was removed after its retention"
            raise StepExpired(message, path=self._store.url(path))

    def publish(self, outcome: OutcomeRecord) -> StepRecord:
        """Give a committed query its step, unless it has one: safe to repeat and to race."""
        body = _body(outcome)
        last = self.read(outcome.after) if outcome.after else None
        while True:
            record = StepRecord.following(last, body)
            if self._store.create_once(layout.step(record.step), record.encode()):
                return record
            last = self.read(record.step)
            if last.body.query == body.query:
                return last


def _body(outcome: OutcomeRecord) -> StepBody:
    if outcome.step is None:
        raise CorruptRecord(f"query {outcome.query} is committed without a step")
    return outcome.step
