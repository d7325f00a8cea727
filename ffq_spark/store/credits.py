"""Byte credits: how much a reader may have asked for and not yet given on, byte by byte."""

from __future__ import annotations


class Credits:
    """An allowance that is charged before a request and repaid when its bytes have been used.

    What is repaid becomes free again only when it makes up half of the allowance, or when nothing
    is owed any more: requests then go out in groups, and half of the allowance is always at work.
    A charge above the whole allowance is granted alone. One thread uses an allowance.

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
        """Take so many credits, if they are there."""
        alone = not self._owed
        if size > self._free and not alone:
            return False
        self._free -= size
        self._owed += size
        self.peak = max(self.peak, self._owed)
        return True

    def repay(self, size: int) -> None:
        """Give credits back."""
        self._owed -= size
        self._returned += size
        if not self._owed or self._returned >= self.total // 2:
            self._free += self._returned
            self._returned = 0
