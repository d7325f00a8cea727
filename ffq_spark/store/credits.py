"""Byte credits: a limit on the bytes that a reader has requested and not yet processed."""

from __future__ import annotations


class Credits:
    """An allowance that is charged before a request and repaid when its bytes have been used.

    Repaid credits become free only when they reach half of the allowance, or when nothing is owed.
    So requests are sent in groups, while the other half of the allowance is in use. A charge above
    the whole allowance is granted if nothing else is owed. Not thread-safe.

    >>> credits = Credits(100)
    >>> credits.charge(60), credits.charge(60)
    (True, False)
    >>> credits.repay(60)
    >>> credits.charge(250), credits.charge(1), credits.peak
    (True, False, 250)
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.peak = 0
        self._free = total
        self._returned = 0
        self._owed = 0

    def charge(self, size: int) -> bool:
        """Take `size` credits and return True, or return False if too few are free."""
        if size > self._free and self._owed:
            return False
        self._free -= size
        self._owed += size
        self.peak = max(self.peak, self._owed)
        return True

    def repay(self, size: int) -> None:
        """Give `size` credits back."""
        self._owed -= size
        self._returned += size
        if not self._owed or self._returned >= self.total // 2:
            self._free += self._returned
            self._returned = 0
