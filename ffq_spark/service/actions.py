"""The actions of the service: FFQ's control plane by the same names, and what producers need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ffq_spark.errors import BadRequest, Unsupported
from ffq_spark.exchange.attempts.status import query_status
from ffq_spark.exchange.ledger.cancel import request_cancel
from ffq_spark.exchange.maintenance.gc import inactive_queries
from ffq_spark.service.access import Access
from ffq_spark.service.producing import AbortQuery, BeginQuery, CommitQuery, RegisterMapOutput
from ffq_spark.service.queries import RESULTS, Queries
from ffq_spark.service.wire import Message

if TYPE_CHECKING:
    from ffq_spark.service.server import ExchangeServer


@dataclass(frozen=True)
class SubmitQuery(Message):
    """Run SQL, or read a view, on the service's Spark session."""

    sql: str | None = None
    view: str | None = None


@dataclass(frozen=True)
class GetQueryStatus(Message):
    """Where a query stands: one that was submitted, or with `exchange` one that writes to it."""

    query: int
    exchange: str | None = None


@dataclass(frozen=True)
class CancelQuery(Message):
    """End a query, with a reason: one that was submitted, or one that writes to an exchange."""

    query: int
    reason: str = "canceled by a caller"
    exchange: str | None = None


@dataclass(frozen=True)
class Heartbeat(Message):
    """Say that a producer lives, so that its query is not taken for lost."""

    exchange: str
    query: int


@dataclass(frozen=True)
class Check(Message):
    """Which queries of an exchange are no longer active, and why."""

    exchange: str


@dataclass(frozen=True)
class Health(Message):
    """Whether the service works, and how busy it is."""


class _Handler(NamedTuple):
    body: type[Message]
    run: Callable[[Access, Any], Any]


class Actions:
    """Each action: the body it takes, who may ask, and what is done."""

    def __init__(self, server: ExchangeServer) -> None:
        self._server = server
        self._handlers = {
            body.__name__: _Handler(body, run)
            for body, run in (
                (SubmitQuery, self._submit),
                (GetQueryStatus, self._status),
                (CancelQuery, self._cancel),
                (BeginQuery, self._begin),
                (RegisterMapOutput, self._register),
                (CommitQuery, self._commit),
                (AbortQuery, self._abort),
                (Heartbeat, self._beat),
                (Check, self._check),
                (Health, self._health),
            )
        }
        self.names = frozenset(self._handlers)

    def described(self) -> list[tuple[str, str]]:
        """The actions and what they are for."""
        return [(name, (h.body.__doc__ or "").strip()) for name, h in self._handlers.items()]

    def run(self, access: Access, name: str, body: bytes) -> Any:
        """Carry out an action for a caller."""
        handler = self._handlers.get(name)
        if handler is None:
            raise BadRequest(f"there is no such action; there are {', '.join(self._handlers)}")
        return handler.run(access, handler.body.decode(body or b"{}"))

    def _submit(self, access: Access, body: SubmitQuery) -> Any:
        access.require("write", RESULTS)
        return {"query": self._queries.submit(access, body.sql, body.view), "state": "QUEUED"}

    def _status(self, access: Access, body: GetQueryStatus) -> Any:
        if body.exchange is None:
            access.require("read", RESULTS)
            return self._hidden(self._queries.status(access, body.query))
        self._server.allow(access, "read", body.exchange)
        found = query_status(self._server.roots.store(body.exchange), body.query)
        state = {"state": found.state.name, "code": found.state.value}
        times = {"submitted_at_ms": found.started_at_ms, "ended_at_ms": found.ended_at_ms}
        told = {"query": found.query, "message": found.message, "owner": found.initiator}
        return self._hidden({**told, **state, **times})

    def _hidden(self, status: dict[str, Any]) -> dict[str, Any]:
        return {**status, "message": self._server.roots.hide(status["message"])}

    def _cancel(self, access: Access, body: CancelQuery) -> Any:
        if body.exchange is None:
            access.require("cancel", RESULTS)
            return self._hidden(self._queries.cancel(access, body.query, body.reason))
        self._server.allow(access, "cancel", body.exchange)
        store = self._server.roots.store(body.exchange)
        record = request_cancel(store, body.query, body.reason, who=access.name)
        # The first request stays: it may be another's, with a reason for readers alone.
        known = access.name == record.who or access.allows("read", body.exchange)
        who, message = (record.who, record.message) if known else (None, "")
        return {"query": record.query, "who": who, "message": message}

    def _begin(self, access: Access, body: BeginQuery) -> Any:
        self._server.allow(access, "write", body.exchange)
        return self._server.producing.begin(body)

    def _register(self, access: Access, body: RegisterMapOutput) -> Any:
        self._server.allow(access, "write", body.exchange)
        with self._server.writers.inside():
            return self._server.producing.register(body)

    def _commit(self, access: Access, body: CommitQuery) -> Any:
        self._server.allow(access, "write", body.exchange)
        return self._server.producing.commit(body)

    def _abort(self, access: Access, body: AbortQuery) -> Any:
        self._server.allow(access, "write", body.exchange)
        return self._server.producing.abort(body)

    def _beat(self, access: Access, body: Heartbeat) -> Any:
        self._server.allow(access, "write", body.exchange)
        self._server.producing.beat(body.exchange, body.query)
        return {"accepted": True}

    def _check(self, access: Access, body: Check) -> Any:
        self._server.allow(access, "read", body.exchange)
        found = inactive_queries(self._server.roots.store(body.exchange))
        return {"inactive": {str(query): why for query, why in found.items()}}

    def _health(self, access: Access, body: Health) -> Any:
        server = self._server
        return {
            "status": "DRAINING" if server.calls.draining else "SERVING",
            "calls": server.calls.active,
            "readers": server.readers.active,
            "waiting": server.readers.waiting,
            "writers": server.writers.active,
            "queries": server.queries.counts() if server.queries else None,
        }

    @property
    def _queries(self) -> Queries:
        if self._server.queries is None:
            raise Unsupported("the service has no Spark session: give one to `ffq.serve`")
        return self._server.queries
