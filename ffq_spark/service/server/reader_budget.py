"""Divide the server's memory among its readers.

Half of a reader's budget is for up to four messages: one that gRPC sends, one that is ready, one
that is being built, and the batches from which it is built. The other half is for bytes from
storage: those being read, and those that a message still refers to.
"""

from __future__ import annotations

from dataclasses import dataclass

from ffq_spark.options import ServeOptions


@dataclass(frozen=True)
class ReaderBudget:
    """The bytes that one reader may hold. Readers cannot use the budget of another.

    >>> budget = ReaderBudget.of(ServeOptions(server_credits=64 << 20, max_readers=64))
    >>> budget.part_bytes >> 10, budget.message_bytes >> 10
    (256, 128)
    """

    part_bytes: int
    """The largest part that is read whole."""
    message_bytes: int
    """The approximate size of a message."""

    @classmethod
    def of(cls, options: ServeOptions) -> ReaderBudget:
        """Return an equal share of the server's credits."""
        total = options.server_credits // options.max_readers
        return cls(max(1, total // 4), max(1, min(options.max_message_bytes, total // 8)))
