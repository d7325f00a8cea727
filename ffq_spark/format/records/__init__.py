"""The JSON records under `_ffq/`: small, readable, and most of them created once."""

from __future__ import annotations

from ffq_spark.format.records.exchange import (
    FEATURES,
    FORMAT_VERSION,
    HASHES,
    ExchangeRecord,
    FormatRecord,
)
from ffq_spark.format.records.json_record import JsonRecord
from ffq_spark.format.records.queries import (
    CancelRecord,
    JobRecord,
    LeaseRecord,
    Outcome,
    OutcomeRecord,
    QueryRecord,
)
from ffq_spark.format.records.routing import RoutingRecord
from ffq_spark.format.records.steps import NewestRecord, StepBody, StepRecord
from ffq_spark.format.records.streams import (
    SEAL,
    BatchRecord,
    Offsets,
    OwnerRecord,
    StreamBatch,
)

__all__ = [
    "FEATURES",
    "FORMAT_VERSION",
    "HASHES",
    "SEAL",
    "BatchRecord",
    "CancelRecord",
    "ExchangeRecord",
    "FormatRecord",
    "JobRecord",
    "JsonRecord",
    "LeaseRecord",
    "NewestRecord",
    "Offsets",
    "Outcome",
    "OutcomeRecord",
    "OwnerRecord",
    "QueryRecord",
    "RoutingRecord",
    "StepBody",
    "StepRecord",
    "StreamBatch",
]
