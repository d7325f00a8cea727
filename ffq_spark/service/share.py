"""What one reader may hold, and what for. Nobody can take another's share.

While one message is with gRPC, the next is ready and the one after it is being made. So at most
three messages are there, and a fourth as the batches it is joined from. The other half is for
bytes from storage: those that are read, and those of which a message is still a slice.
"""

from __future__ import annotations

from dataclasses import dataclass

from ffq_spark.options import ServeOptions


@dataclass(frozen=True)
class Share:
    """The bytes that one reader may hold.

    >>> share = Share.of(ServeOptions(server_credits=64 << 20, max_readers=64))
    >>> share.part_bytes >> 10, share.message_bytes >> 10
    (256, 128)
    """

    part_bytes: int
    """The largest part that is held whole."""
    message_bytes: int
    """About the size of a message."""

    @classmethod
    def of(cls, options: ServeOptions) -> Share:
        """An equal share of the server's credits."""
        whole = options.server_credits // options.max_readers
        return cls(max(1, whole // 4), max(1, min(options.max_message_bytes, whole // 8)))
