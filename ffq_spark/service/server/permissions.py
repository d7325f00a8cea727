"""Check what a caller may do with an exchange or with the results of statements."""

from __future__ import annotations

from ffq_spark.errors import Forbidden
from ffq_spark.service.auth.access import Access
from ffq_spark.service.statements.results_root import RESULTS
from ffq_spark.service.statements.statements import Statements


class Permissions:
    """The rules for exchanges, by scope and root, and for results, by owner.

    >>> reader = Access("etl", frozenset({"read"}))
    >>> Permissions().require(reader, "read", "orders")
    >>> Permissions().require(reader, "write", "orders")
    Traceback (most recent call last):
    ffq_spark.errors.Forbidden: [FFQ_FORBIDDEN] the token of 'etl' lacks scope write for orders. \
Ask the operator of the service for a token with this scope and root
    """

    def __init__(self, statements: Statements | None = None) -> None:
        self._statements = statements

    def require(self, access: Access, scope: str, exchange: str) -> None:
        """Raise Forbidden if the token lacks the scope, or a result belongs to another caller."""
        access.require(scope, exchange)
        root, _, query = exchange.partition("/")
        if root != RESULTS:
            return
        if scope != "read":
            raise Forbidden("results of statements are read-only: only the service writes them")
        if self._statements is not None:
            self._statements.require_result(access, query)
