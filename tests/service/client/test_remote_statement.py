"""Waiting for a statement, and its result."""

from __future__ import annotations

from typing import Any

import pytest

from ffq_spark.errors import StatementActive
from ffq_spark.service.client import statement as statement_module
from ffq_spark.service.client.statement import RemoteStatement


class Answers:
    """A channel to a service that returns these states of a statement in turn."""

    def __init__(self, *states: str) -> None:
        self._states = list(states)
        self.sent: list[tuple[str, Any]] = []

    def action(self, name: str, body: Any) -> dict[str, Any]:
        self.sent.append((name, body))
        return {"state": self._states.pop(0) if len(self._states) > 1 else self._states[0]}


def test_wait_asks_until_the_statement_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statement_module, "_POLL_SECONDS", 0)
    channel = Answers("QUEUED", "RUNNING", "CANCELED")
    assert RemoteStatement(channel, 5).wait() == {"state": "CANCELED"}  # type: ignore[arg-type]
    assert channel.sent == [("GetQueryStatus", {"query": 5})] * 3


def test_wait_gives_up_after_its_time() -> None:
    expected = r"statement 5 is still RUNNING after 0 s\. It goes on: call `wait\(\)` again$"
    with pytest.raises(StatementActive, match=expected):
        RemoteStatement(Answers("RUNNING"), 5).wait(0)  # type: ignore[arg-type]


def test_cancel_sends_the_reason() -> None:
    channel = Answers("CANCELED")
    RemoteStatement(channel, 5).cancel("enough")  # type: ignore[arg-type]
    assert channel.sent == [("CancelQuery", {"query": 5, "reason": "enough"})]
