"""Who calls: known before anything of a call is looked at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow.flight as flight

from ffq_spark.errors import FfqError
from ffq_spark.service.access import ANYBODY, Access, Tokens
from ffq_spark.service.counters import Counters
from ffq_spark.service.statuses import to_flight


class Caller(flight.ServerMiddleware):  # type: ignore[misc]
    """What a call may do."""

    def __init__(self, access: Access) -> None:
        self.access = access


class Doorman(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Lets a call in, or tells why not."""

    def __init__(self, tokens: Tokens | None, counters: Counters) -> None:
        self._tokens = tokens
        self._counters = counters

    def start_call(self, info: Any, headers: Mapping[str, list[Any]]) -> Caller:
        if self._tokens is None:
            return Caller(ANYBODY)
        try:
            return Caller(self._tokens.who(headers))
        except FfqError as error:
            self._counters.call(info.method.name.lower(), error.code)
            raise to_flight(error) from None
