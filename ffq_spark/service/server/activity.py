"""The live state of a server, which its Flight methods change and `Health` and metrics report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ffq_spark.options import ServeOptions
from ffq_spark.service.server.concurrency import ActiveCalls, ConcurrencyLimit
from ffq_spark.service.server.totals import ServiceTotals
from ffq_spark.service.statements.statements import Statements


@dataclass(frozen=True)
class Activity:
    """The calls, readers, writers and statements of one server.

    >>> Activity.start(ServeOptions()).health()["status"]
    'SERVING'
    """

    readers: ConcurrencyLimit
    writers: ConcurrencyLimit
    statements: Statements | None = None
    calls: ActiveCalls = field(default_factory=ActiveCalls)
    totals: ServiceTotals = field(default_factory=ServiceTotals)

    @classmethod
    def start(cls, options: ServeOptions, statements: Statements | None = None) -> Activity:
        """Return the state of a server that has had no calls yet."""
        return cls(
            ConcurrencyLimit("reader", options.max_readers, options.max_wait),
            ConcurrencyLimit("writer", options.max_writers, options.max_wait),
            statements,
        )

    def health(self) -> dict[str, Any]:
        """Return the answer to the action `Health`."""
        return {
            "status": "DRAINING" if self.calls.draining else "SERVING",
            "calls": self.calls.active,
            "readers": self.readers.active,
            "waiting": self.readers.waiting,
            "writers": self.writers.active,
            "queries": self.statements.counts() if self.statements else None,
        }
