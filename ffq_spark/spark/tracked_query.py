"""A query that the steward tracks from its driver's first event to its outcome."""

from __future__ import annotations

from dataclasses import dataclass, field

from ffq_spark.exchange.attempts.task_log import Event

# Losing tasks of a query end after it, and a killed task may even begin a query that has ended.
LATE_BEATS = 6


@dataclass
class TrackedQuery:
    """A query of this application that is under way or ended a few beats ago.

    >>> query = TrackedQuery(7, "/data/orders", pieces=0)
    >>> query.needs_storage
    True
    """

    number: int
    root: str
    pieces: int
    pending: list[Event] = field(default_factory=list)
    flush_due: bool = False
    is_canceled: bool = False
    ended_ms: int | None = None
    was_searched: bool = False
    is_closed: bool = False
    """It has an outcome, or ended so long ago that no task begins it any more."""
    beats_left: int = LATE_BEATS
    last_look: int = 0

    @property
    def needs_storage(self) -> bool:
        """Whether to write its events, look for a cancel request, or look for its outcome."""
        if self.flush_due:
            return True
        if self.ended_ms is None:
            return not self.is_canceled
        return not self.is_closed and (not self.was_searched or self.beats_left <= 0)

    @property
    def is_done(self) -> bool:
        """Whether it can be forgotten: closed, with all late events stored."""
        return (
            self.ended_ms is not None
            and self.is_closed
            and self.beats_left <= 0
            and not self.pending
        )

    def reopen(self) -> None:
        """Track a new write with the same number, after one that failed before its query began."""
        self.ended_ms, self.was_searched, self.is_closed = None, False, False
        self.beats_left = LATE_BEATS
