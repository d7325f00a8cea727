"""Create query numbers that are unique, ascend in time and are below 2^63."""

from __future__ import annotations

import secrets
import time

from ffq_spark.shared_names import QueryNumber


def now_ms() -> int:
    """Return the wall-clock time in milliseconds."""
    return time.time_ns() // 1_000_000


def new_query() -> int:
    """Create a query number: 42 bits of milliseconds, 21 random bits.

    >>> new_query() < 1 << 63
    True
    """
    bits = QueryNumber.RANDOM_BITS
    return (now_ms() << bits) | secrets.randbits(bits)


def query_time_ms(query: int) -> int:
    """Return the time at which a query number was created."""
    return query >> QueryNumber.RANDOM_BITS
