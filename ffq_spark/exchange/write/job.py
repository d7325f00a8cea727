"""The settings of a write, decided once on the driver and sent to all of its tasks."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from ffq_spark.format.records import ExchangeRecord, QueryRecord
from ffq_spark.format.statistics import choose
from ffq_spark.options import WriteOptions


@dataclass(frozen=True)
class WriteJob:
    """A query that is being written, with the options that its tasks need."""

    exchange: ExchangeRecord
    query: QueryRecord
    layout: str
    payload: str
    compression: str
    sort_by: tuple[str, ...]
    statistics: tuple[str, ...]
    max_buffer_bytes: int
    digests: bool = False
    """Whether to digest the rows, so that a re-run can be compared with the first run."""

    @classmethod
    def of(cls, exchange: ExchangeRecord, query: QueryRecord, options: WriteOptions) -> WriteJob:
        """Gather from the options what every task of a query's write needs."""
        return cls(
            exchange,
            query,
            options.layout,
            options.payload,
            options.compression,
            options.sort_by,
            tuple(field.name for field in choose(exchange.schema, options.statistics)),
            options.max_buffer_bytes,
            bool(options.stream_id),
        )

    @property
    def stats_fields(self) -> list[pa.Field]:
        return [self.exchange.schema.field(name) for name in self.statistics]
