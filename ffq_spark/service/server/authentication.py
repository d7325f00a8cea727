"""Authenticate every Flight call by its bearer token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow.flight as flight

from ffq_spark.errors import FfqError
from ffq_spark.service.auth.access import UNRESTRICTED, Access
from ffq_spark.service.auth.tokens import Tokens
from ffq_spark.service.server.totals import ServiceTotals
from ffq_spark.service.wire.statuses import to_flight


class AuthenticatedCall(flight.ServerMiddleware):  # type: ignore[misc]
    """The access of the caller, as Flight's methods find it in their context."""

    def __init__(self, access: Access) -> None:
        self.access = access


class Authenticator(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Flight middleware that refuses calls without a known token."""

    def __init__(self, tokens: Tokens | None, totals: ServiceTotals) -> None:
        self._tokens = tokens
        self._totals = totals

    def start_call(self, info: Any, headers: Mapping[str, list[Any]]) -> AuthenticatedCall:
        """Authenticate a call before Flight reads its request."""
        if self._tokens is None:
            return AuthenticatedCall(UNRESTRICTED)
        try:
            return AuthenticatedCall(self._tokens.authenticate(headers))
        except FfqError as error:
            self._totals.count_call(info.method.name.lower(), error.code)
            raise to_flight(error) from None
