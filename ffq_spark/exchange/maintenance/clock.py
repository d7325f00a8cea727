"""The current time for gc: this machine's clock, unless it is ahead of the storage's clock.

A clock that is behind only delays a deletion. A clock that is ahead would end the leases of live
writers and delete their files.
"""

from __future__ import annotations

import logging

from ffq_spark.format.ids import now_ms
from ffq_spark.store import Store

# Storage reports its time in whole seconds, and its answer takes time to arrive.
_TOLERANCE_MS = 30_000

logger = logging.getLogger(__name__)


def trusted_now_ms(store: Store) -> int:
    """Return this machine's time, or the storage's time if that is more than 30 s earlier.

    >>> trusted_now_ms(Store("memory://doc-clock")) > 0
    True
    """
    local, stored = now_ms(), store.clock_ms()
    if stored is None or local - stored <= _TOLERANCE_MS:
        return local
    ahead = (local - stored) // 1000
    logger.warning("the local clock is %d s ahead of %s; gc uses its time", ahead, store.url())
    return stored
