"""The records of a query: its start, lease, cancel request and outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from ffq_spark.format.records.exchange import ExchangeRecord
from ffq_spark.format.records.json_record import JsonRecord
from ffq_spark.format.records.steps import StepBody
from ffq_spark.format.records.streams import OwnerRecord


@dataclass(frozen=True)
class QueryRecord(JsonRecord):
    """Opens a query; created before its first task writes."""

    query: int
    initiator: str
    stage: int
    mode: str
    created_at_ms: int
    lease_seconds: int = 0


@dataclass(frozen=True)
class JobRecord(JsonRecord):
    """The settings that all map tasks of a shared write use, where no Spark driver passes them on.

    `exchange` is the exchange's record, even before it is on storage. `options` are those of the
    write.
    """

    query: int
    exchange: str
    options: str


@dataclass(frozen=True)
class CancelRecord(JsonRecord):
    """A request to the initiator to cancel a query."""

    query: int
    who: str
    code: str
    message: str
    at_ms: int


@dataclass(frozen=True)
class LeaseRecord(JsonRecord):
    """The last time at which an initiator was alive. Renewed in place, unlike most records."""

    initiator: str
    seconds: int
    renewed_at_ms: int

    @property
    def expires_at_ms(self) -> int:
        return self.renewed_at_ms + self.seconds * 1000


class Outcome(Enum):
    """How a query ended. Exactly one outcome is ever recorded."""

    COMMITTED = "COMMITTED"
    ABORTED = "ABORTED"
    CANCELED = "CANCELED"
    LOST = "LOST"


@dataclass(frozen=True)
class OutcomeRecord(JsonRecord):
    """Ends a query. By its `nonce` a committer recognises its own retried write.

    `after` is the newest step that existed before this outcome; the query's own step, if it gets
    one, has a higher number. `exchange` is set if the exchange had no record before this query,
    `owner` if the query's batch begins an epoch of its stream.
    """

    query: int
    outcome: Outcome
    at_ms: int
    nonce: str
    message: str = ""
    code: str = ""
    who: str = ""
    after: int = 0
    step: StepBody | None = None
    exchange: ExchangeRecord | None = None
    owner: OwnerRecord | None = None

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> OutcomeRecord:
        record = super().from_document(document)
        step, exchange, owner = (document.get(name) for name in ("step", "exchange", "owner"))
        return replace(
            record,
            outcome=Outcome(record.outcome),
            step=None if step is None else StepBody.from_document(step),
            exchange=None if exchange is None else ExchangeRecord.from_document(exchange),
            owner=None if owner is None else OwnerRecord.from_document(owner),
        )
