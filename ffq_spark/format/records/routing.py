"""The record of a routing epoch: the number of partitions that new steps have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ffq_spark.format.records.json_record import JsonRecord


@dataclass(frozen=True)
class RoutingRecord(JsonRecord):
    """The number of partitions that steps have whose write begins in this epoch.

    `exchange.json` has the number of epoch 0.
    """

    epoch: int
    partitions: int
    created_at_ms: int

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> RoutingRecord:
        record = super().from_document(document)
        if record.epoch < 1 or record.partitions < 1:
            raise ValueError("the epoch and the number of partitions must be at least 1")
        return record
