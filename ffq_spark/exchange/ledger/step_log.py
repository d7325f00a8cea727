"""The step log: the numbered records that decide what readers see.

Step records are never deleted and their numbers have no gap. So a number is never used twice, the
newest step is found by reading a few numbers, and publishing a query only walks upwards from the
newest step that existed before the query's outcome.
"""

from __future__ import annotations

import logging
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ffq_spark.errors import CorruptIndex, CorruptRecord, StepExpired, StepNotFound
from ffq_spark.exchange.ledger.log_checkpoint import LogCheckpoint, Stored
from ffq_spark.exchange.ledger.log_spans import Span, cover, ending_at
from ffq_spark.format import paths
from ffq_spark.format.records import NewestRecord, OutcomeRecord, StepRecord
from ffq_spark.store import Store

_PROBES = 8

logger = logging.getLogger(__name__)


class Steps(Sequence[StepRecord]):
    """Steps in the order of the log; the record of a step in a log checkpoint is decoded lazily."""

    def __init__(self, pieces: Iterable[StepRecord | LogCheckpoint]) -> None:
        self.pieces = tuple(pieces)
        sizes = (len(p) if isinstance(p, LogCheckpoint) else 1 for p in self.pieces)
        self._starts = [0, *accumulate(sizes)]
        self._decoded: dict[int, StepRecord] = {}

    def __len__(self) -> int:
        return self._starts[-1]

    @overload
    def __getitem__(self, index: int) -> StepRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[StepRecord]: ...
    def __getitem__(self, index: int | slice) -> StepRecord | list[StepRecord]:
        if isinstance(index, slice):
            return [self[position] for position in range(len(self))[index]]
        position = range(len(self))[index]
        if position not in self._decoded:
            number = bisect(self._starts, position) - 1
            piece = self.pieces[number]
            if isinstance(piece, LogCheckpoint):
                piece = piece.record(position - self._starts[number])
            self._decoded[position] = piece
        return self._decoded[position]

    def bases(self) -> NDArray[np.int64]:
        """Return, for each step, the first step visible in its snapshot."""
        bases = [p.bases if isinstance(p, LogCheckpoint) else [p.base] for p in self.pieces]
        return np.concatenate(bases)


class StepLog:
    """The numbered steps of one exchange.

    >>> StepLog(Store("memory://doc-log")).last_number()
    0
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def numbers(self) -> range:
        """Return all step numbers, ascending."""
        return range(1, self.last_number() + 1)

    def last_number(self) -> int:
        """Return the number of the newest step, or 0.

        The search begins at the step that a hint names. The log is listed if the hint is missing
        or wrong: it is then short, or was written before log checkpoints existed.
        """
        data = self._store.read_optional(paths.NEWEST)
        try:
            hint = NewestRecord.decode(data, paths.NEWEST).step if data else 0
        except CorruptRecord:
            hint = 0
        return (self._search(hint) if 0 < hint < 1 << 63 else 0) or self._last_listed()

    def _search(self, low: int) -> int:
        """Find the newest step in strides that grow, then shrink; 0 if step `low` is missing."""
        stride, high = _PROBES, 0
        while high != low + 1:
            if high:
                stride = -(-(high - low) // _PROBES)
                # Probing one more step keeps a lost or a new record from ending the log.
                probes = [*range(low + stride, high, stride), high + 1]
            else:
                probes = [low + stride * i for i in range(_PROBES + 1)]
            files = self._store.read_many([paths.step(number) for number in probes])
            existing = [n for n, data in zip(probes, files, strict=True) if data is not None]
            if not existing and not high:
                return 0
            low = max(low, *existing) if existing else low
            high = min((number for number in (*probes, high) if number > low), default=0)
            stride *= _PROBES
        return low

    def _last_listed(self) -> int:
        names = (paths.parse_step(entry.name) for entry in self._store.list(paths.STEPS))
        listed = {number for number in names if number is not None}
        last = max(listed, default=0)
        # A listing that is read while steps are added may lack one. If such a step cannot be read
        # either, the log has a gap.
        self.read_many([number for number in range(1, last + 1) if number not in listed])
        return last

    def read(self, number: int) -> StepRecord:
        """Read the record of one step."""
        return self.read_many([number])[0]

    def read_many(self, numbers: Sequence[int]) -> Sequence[StepRecord]:
        """Read the records of steps, in the given order; a range is read from log checkpoints."""
        if isinstance(numbers, range) and numbers.step == 1 and len(numbers) > 1:
            return Steps(self._between(numbers[0], numbers[-1]))
        files = self._store.read_many([paths.step(number) for number in numbers])
        return [self._decode(n, data) for n, data in zip(numbers, files, strict=True)]

    def _between(self, first: int, last: int) -> list[StepRecord | LogCheckpoint]:
        pieces = self._fetch(cover(first, last), first)
        return [p.since(first) if isinstance(p, LogCheckpoint) else p[1] for p in pieces]

    def _fetch(self, spans: Iterable[Span], first: int) -> list[Stored | LogCheckpoint]:
        """Read spans; a log checkpoint that cannot be used is replaced by smaller files."""
        pieces: dict[int, Stored | LogCheckpoint] = {}
        wanted = list(spans)
        while wanted:
            files = self._store.read_large([span.path for span in wanted])
            smaller: list[Span] = []
            for span, data in zip(wanted, files, strict=True):
                if span.size == 1:
                    stored = None if data is None else bytes(data)
                    record = self._decode(span.last, stored)
                    pieces[span.first] = (stored or b"", record)
                elif (checkpoint := self._open(span, data)) is not None:
                    pieces[span.first] = checkpoint
                else:
                    smaller += span.smaller(first)
            wanted = smaller
        return [pieces[number] for number in sorted(pieces)]

    def _open(self, span: Span, data: pa.Buffer | None) -> LogCheckpoint | None:
        if data is None:
            return None
        try:
            return LogCheckpoint.decode(data, span, self._store.url(span.path))
        except CorruptRecord as error:
            logger.warning("%s: %s; reading smaller files instead", error.path, error.message)
            return None

    def visible(self, number: int) -> Steps:
        """Return the snapshot as of a step: the steps that are visible with it, oldest first.

        If the step's version begins with a rollback, the steps that it restores come first.
        """
        pieces: list[StepRecord | LogCheckpoint] = []
        while number or not pieces:
            newest = self.read(number)
            base = newest.base
            version = Steps([newest] if base == number else self._between(base, number))
            for position in np.flatnonzero(version.bases() != base):
                other = version[int(position)]
                same = f"step {other.step} of the same version has base {other.base}"
                message = f"step {number} has base {base}, but {same}"
                raise CorruptRecord(message, path=self._store.url(paths.step(number)))
            pieces[:0] = version.pieces
            # Step 1 restores nothing, and reading it would open a log checkpoint.
            number = version[0].body.restores if base > 1 else 0
            if number >= base:
                path = self._store.url(paths.step(base))
                raise CorruptRecord(f"step {base} restores step {number}", path=path)
        return Steps(pieces)

    def _decode(self, number: int, data: bytes | None) -> StepRecord:
        path = paths.step(number)
        if data is None:
            raise StepNotFound(f"there is no step {number}", path=self._store.url(path))
        record = StepRecord.decode(data, self._store.url(path))
        if record.step != number:
            message = f"the record is of step {record.step}"
            raise CorruptRecord(message, path=self._store.url(path))
        return record

    def find(self, outcome: OutcomeRecord) -> StepRecord | None:
        """Find the step of a committed query, or return None while it is not published."""
        number = outcome.after
        while (data := self._store.read_optional(paths.step(number := number + 1))) is not None:
            record = self._decode(number, data)
            if record.body.query == outcome.query:
                return record
        return None

    def refuse_expired(self, number: int) -> None:
        """Raise StepExpired if the data of a step may have been deleted after its retention."""
        path = paths.expired(number)
        if self._store.read_optional(path) is not None:
            message = f"the data of step {number} was deleted after its retention"
            raise StepExpired(message, path=self._store.url(path))

    @contextmanager
    def explaining_expiry(self, outcome: OutcomeRecord | None) -> Iterator[None]:
        """Raise StepExpired instead of a corruption error if the data of a step has expired.

        `outcome` is the end of the query whose data the block reads.
        """
        try:
            yield
        except (CorruptIndex, CorruptRecord):
            step = self.find(outcome) if outcome and outcome.step else None
            if step is not None:
                self.refuse_expired(step.step)
            raise

    def refuse_any_expired(self, numbers: Iterable[int]) -> None:
        """Raise StepExpired if the data of any of these steps may have been deleted."""
        for number in sorted(self.expired().intersection(numbers)):
            self.refuse_expired(number)

    def expired(self) -> set[int]:
        """Return the steps whose data may have been deleted."""
        names = (paths.parse_step(entry.name) for entry in self._store.list(paths.EXPIRED))
        return {number for number in names if number is not None}

    def publish(self, outcome: OutcomeRecord) -> StepRecord:
        """Create the step of a committed query, or return its existing step; safe to repeat."""
        body = outcome.step
        if body is None:
            raise CorruptRecord(f"query {outcome.query} is committed without a step")
        last = self.read(outcome.after) if outcome.after else None
        while True:
            record = StepRecord.following(last, body)
            if self._store.create_once(paths.step(record.step), record.encode()):
                return record
            last = self.read(record.step)
            if last.body.query == body.query:
                return last

    def condense(self, number: int) -> None:
        """Write the log checkpoints that a step completes, and the hint about the newest step.

        Both only save time, so a failure is logged and does not fail the commit.
        """
        completed = ending_at(number)
        if not completed:
            return
        try:
            self._store.replace(paths.NEWEST, NewestRecord(number).encode())
            # The process that should have written the earlier ones may have died.
            for spans in (ending_at(completed[0].first - 1), completed):
                # If one is too large to be written, so are the larger ones.
                all(self.write_log_checkpoint(span) for span in spans)
        except Exception as error:
            logger.warning("no log checkpoint of the steps up to %d: %s", number, error)

    def write_log_checkpoint(self, span: Span) -> bool:
        """Write the log checkpoint of a span unless it exists; return False if it is too large.

        Its records and parts come from smaller log checkpoints where these exist.
        """
        try:
            self._store.read_range(span.path, 0, 1)
        except FileNotFoundError:
            pieces = self._fetch(span.smaller(span.first), span.first)
            checkpoint = LogCheckpoint.build(self._store, pieces)
            if checkpoint is None:
                return False
            self._store.create_once(span.path, checkpoint.encode())
        return True
