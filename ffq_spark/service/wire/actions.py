"""Bodies of the service's actions. Their docstrings are what `list_actions` returns."""

from __future__ import annotations

from dataclasses import dataclass, field

from ffq_spark.service.wire.messages import Message


@dataclass(frozen=True)
class SubmitQuery(Message):
    """Run an SQL statement, or read a view, on the service's Spark session."""

    sql: str | None = None
    view: str | None = None


@dataclass(frozen=True)
class GetQueryStatus(Message):
    """Return the state of a submitted statement, or of a query that writes to `exchange`."""

    query: int
    exchange: str | None = None


@dataclass(frozen=True)
class CancelQuery(Message):
    """Cancel a submitted statement, or a query that writes to `exchange`, with a reason."""

    query: int
    reason: str = "canceled by a caller"
    exchange: str | None = None


@dataclass(frozen=True)
class BeginQuery(Message):
    """Begin a write with an Arrow schema (in base64) and write options."""

    exchange: str
    schema: str
    mode: str = "append"
    options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RegisterMapOutput(Message):
    """Validate and register an attempt that a producer wrote to storage directly."""

    exchange: str
    query: int
    map_task: int
    attempt: int


@dataclass(frozen=True)
class CommitQuery(Message):
    """Commit the newest registered attempts of map tasks 0 to `map_tasks - 1` as a step."""

    exchange: str
    query: int
    map_tasks: int


@dataclass(frozen=True)
class AbortQuery(Message):
    """Abort a write; none of its rows become visible."""

    exchange: str
    query: int
    reason: str = "aborted by its producer"


@dataclass(frozen=True)
class Heartbeat(Message):
    """Renew the lease of a write that has not ended, so that gc does not fence it."""

    exchange: str
    query: int


@dataclass(frozen=True)
class Check(Message):
    """Return the queries of an exchange that are no longer active, with the reasons."""

    exchange: str


@dataclass(frozen=True)
class Health(Message):
    """Return whether the service accepts calls, and how many are active."""
