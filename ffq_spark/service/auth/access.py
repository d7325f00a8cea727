"""The access of a caller: its scopes, and the roots to which they apply."""

from __future__ import annotations

from dataclasses import dataclass

from ffq_spark.errors import Forbidden

SCOPES = ("read", "write", "cancel")


@dataclass(frozen=True)
class Access:
    """The scopes and roots of one caller; None as roots means all of them.

    >>> Access("etl", frozenset({"read"}), frozenset({"orders"})).require("write", "orders")
    Traceback (most recent call last):
    ffq_spark.errors.Forbidden: [FFQ_FORBIDDEN] the token of 'etl' lacks scope write for orders. \
Ask the operator of the service for a token with this scope and root
    """

    name: str
    scopes: frozenset[str]
    roots: frozenset[str] | None = None

    def allows(self, scope: str, exchange: str) -> bool:
        """Return whether the caller has a scope for an exchange."""
        root = exchange.partition("/")[0]
        return scope in self.scopes and (self.roots is None or root in self.roots)

    def require(self, scope: str, exchange: str) -> None:
        """Raise Forbidden unless the caller has a scope for an exchange."""
        if not self.allows(scope, exchange):
            raise Forbidden(f"the token of {self.name!r} lacks scope {scope} for {exchange}")


UNRESTRICTED = Access("anybody", frozenset(SCOPES))
"""The access of every caller of a server without tokens."""
