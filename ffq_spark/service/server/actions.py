"""Decode, authorize and run the service's actions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

from ffq_spark.errors import BadRequest, Unsupported
from ffq_spark.exchange.attempts.status import query_status
from ffq_spark.exchange.ledger.cancel import request_cancel
from ffq_spark.exchange.maintenance.gc import inactive_queries
from ffq_spark.service.auth.access import Access
from ffq_spark.service.server.activity import Activity
from ffq_spark.service.server.permissions import Permissions
from ffq_spark.service.server.remote_writes import RemoteWrites
from ffq_spark.service.server.roots import Roots
from ffq_spark.service.statements.results_root import RESULTS
from ffq_spark.service.statements.statements import Statements
from ffq_spark.service.wire.actions import (
    AbortQuery,
    BeginQuery,
    CancelQuery,
    Check,
    CommitQuery,
    GetQueryStatus,
    Health,
    Heartbeat,
    RegisterMapOutput,
    SubmitQuery,
)
from ffq_spark.service.wire.messages import Message


class _Handler(NamedTuple):
    body: type[Message]
    run: Callable[[Access, Any], Any]
    scope: str | None = None
    """The scope that callers need for `exchange` in the body; None if the handler checks."""
    needs_slot: bool = False
    """Whether the action counts as an upload."""


class Actions:
    """The actions by name, each with the body that it takes and its handler."""

    def __init__(
        self, roots: Roots, permissions: Permissions, writes: RemoteWrites, activity: Activity
    ) -> None:
        self._roots = roots
        self._permissions = permissions
        self._activity = activity
        handlers: tuple[_Handler, ...] = (
            _Handler(SubmitQuery, self._submit),
            _Handler(GetQueryStatus, self._status),
            _Handler(CancelQuery, self._cancel),
            _Handler(BeginQuery, lambda _, body: writes.begin(body), "write"),
            _Handler(RegisterMapOutput, lambda _, body: writes.register(body), "write", True),
            _Handler(CommitQuery, lambda _, body: writes.commit(body), "write"),
            _Handler(AbortQuery, lambda _, body: writes.abort(body), "write"),
            _Handler(Heartbeat, lambda _, body: writes.heartbeat(body), "write"),
            _Handler(Check, self._check, "read"),
            _Handler(Health, lambda _, body: activity.health()),
        )
        self._handlers = {handler.body.__name__: handler for handler in handlers}
        self.names = frozenset(self._handlers)

    def descriptions(self) -> list[tuple[str, str]]:
        """Return the names of the actions and what they do."""
        return [(name, (h.body.__doc__ or "").strip()) for name, h in self._handlers.items()]

    def run(
        self, access: Access, name: str, body: bytes, has_gone: Callable[[], bool] = lambda: False
    ) -> Any:
        """Run an action for a caller and return its answer; a caller that `has_gone` gets none."""
        handler = self._handlers.get(name)
        if handler is None:
            raise BadRequest(f"unknown action: must be one of {', '.join(self._handlers)}")
        message: Any = handler.body.decode(body or b"{}")
        if handler.scope is not None:
            self._permissions.require(access, handler.scope, message.exchange)
        slot = self._activity.writers.slot(has_gone) if handler.needs_slot else nullcontext()
        with slot:
            # Outcomes and reports quote errors, which name files.
            return self._roots.texts.hide_in(handler.run(access, message))

    def _submit(self, access: Access, body: SubmitQuery) -> Any:
        access.require("write", RESULTS)
        return {"query": self._statements.submit(access, body.sql, body.view), "state": "QUEUED"}

    def _status(self, access: Access, body: GetQueryStatus) -> Any:
        if body.exchange is None:
            access.require("read", RESULTS)
            return self._statements.status(access, body.query)
        self._permissions.require(access, "read", body.exchange)
        status = query_status(self._roots.store(body.exchange), body.query)
        return {
            "query": status.query,
            "message": status.message,
            "owner": status.initiator,
            "state": status.state.name,
            "code": status.state.value,
            "submitted_at_ms": status.started_at_ms,
            "ended_at_ms": status.ended_at_ms,
        }

    def _cancel(self, access: Access, body: CancelQuery) -> Any:
        if body.exchange is None:
            access.require("cancel", RESULTS)
            return self._statements.cancel(access, body.query, body.reason)
        self._permissions.require(access, "cancel", body.exchange)
        store = self._roots.store(body.exchange)
        record = request_cancel(store, body.query, body.reason, who=access.name)
        # The first request wins. It may be of another caller, with a reason that only readers and
        # producers may see: a producer must know why its write has ended.
        may_see = any(access.allows(scope, body.exchange) for scope in ("read", "write"))
        is_visible = access.name == record.who or may_see
        who, message = (record.who, record.message) if is_visible else (None, "")
        return {"query": record.query, "who": who, "message": message}

    @property
    def _statements(self) -> Statements:
        if self._activity.statements is None:
            raise Unsupported(
                "the service has no Spark session: start it with `ffq.serve(…, spark=session)`"
            )
        return self._activity.statements

    def _check(self, access: Access, body: Check) -> Any:
        inactive = inactive_queries(self._roots.store(body.exchange))
        return {"inactive": {str(query): reason for query, reason in inactive.items()}}
