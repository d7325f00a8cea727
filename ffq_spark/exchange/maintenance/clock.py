"""The time by which cleanup decides: this machine's, unless it is ahead of the storage's.

A clock that is behind only delays a removal. One that is ahead would end the leases of live writers
and remove their files.
"""

from __future__ import annotations

import logging

from ffq_spark.format.ids import now_ms
from ffq_spark.store import Store

# Storage tells its time by the second, and the answer takes a while.
_TOLERANCE_MS = 30_000

logger = logging.getLogger(__name__)


def trusted_now_ms(store: Store) -> int:
    """Give this machine's time, or the storage's if that is clearly earlier.

    >>> trusted_now_ms(Store("memory://doc-clock")) > 0
    True
    """
    local, stored = now_ms(), store.clock_ms()
    if stored is None or local - stored <= _TOLERANCE_MS:
        return local
    ahead = (local - stored) // 1000
    logger.warning("this clock is %d s ahead of %s, whose time is used", ahead, store.url())
    return stored
