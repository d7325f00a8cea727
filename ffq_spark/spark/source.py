"""The data source `ffqshuffle`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, ClassVar

import pyspark
from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

from ffq_spark.errors import BadOption, Unsupported
from ffq_spark.exchange.ledger import leases
from ffq_spark.exchange.ledger.ledger import Ledger
from ffq_spark.exchange.read.rows import check_readable
from ffq_spark.exchange.scan.snapshot import open_exchange
from ffq_spark.exchange.write.job import WriteJob
from ffq_spark.exchange.write.prepare import check_delivery, new_initiator, prepare
from ffq_spark.format.ids import new_query, now_ms
from ffq_spark.format.records import ExchangeRecord, QueryRecord
from ffq_spark.options import (
    ReadOptions,
    WriteOptions,
    refuse_unknown_settings,
    storage_options,
)
from ffq_spark.shared_names import Source
from ffq_spark.spark.reader import ExchangeReader, PushingReader
from ffq_spark.spark.stream_writer import ExchangeStreamWriter
from ffq_spark.spark.types import exchange_schema, output_columns, spark_schema
from ffq_spark.spark.worker import pushes_filters
from ffq_spark.spark.writer import ExchangeWriter
from ffq_spark.store import Store

logger = logging.getLogger(__name__)


class FfqShuffleSource(DataSource):
    """`spark.read.format("ffqshuffle")` and `df.write.format("ffqshuffle")`.

    `conf` is what `register(spark)` saw of the session's `spark.ffq.*`; Spark itself passes no conf
    to a Python source.
    """

    conf: ClassVar[Mapping[str, str]] = {}

    # The newest step when the DataFrame was made. Spark keeps this object for all its scans.
    _newest: int | None = None

    @classmethod
    def name(cls) -> str:
        return Source.FORMAT

    def store(self, *, unsafe_commit: bool = False) -> Store:
        """The storage of this source's path."""
        given: dict[str, str] = dict(self.options)
        settings: dict[str, Any] = storage_options(given, self.conf)
        return Store(given.get("path", ""), settings, unsafe_commit=unsafe_commit)

    def schema(self) -> StructType:
        options = self._read_options()
        exchange, self._newest = open_exchange(self.store(), options)
        check_readable(exchange, options)
        columns = spark_schema(exchange)
        return output_columns(columns, options.columns, options.metadata_columns)

    def reader(self, schema: StructType) -> ExchangeReader:
        options = self._read_options()
        # Spark's own scans of a DataFrame share the first one's plan, so pruning must be asked for.
        prunes = options.prune_by_filters and pushes_filters()
        kind = PushingReader if prunes else ExchangeReader
        return kind(self.store(), options, schema, self._newest)

    def _read_options(self) -> ReadOptions:
        return ReadOptions.resolve(dict(self.options), self.conf)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        if pyspark.__version__.startswith("4.1."):
            raise Unsupported(f"streams of steps need Spark 4.2; this is {pyspark.__version__}")
        from ffq_spark.spark.stream_reader import ExchangeStreamReader

        return ExchangeStreamReader(self.store(), self._read_options(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> ExchangeWriter:
        options = self._write_options()
        check_delivery(options)
        store, exchange, initiator = self._prepare(options, schema)
        query = Ledger(store).begin(
            "replace" if overwrite else "append",
            initiator,
            stage=options.stage,
            query=options.query,
            lease_seconds=options.lease_seconds,
        )
        return ExchangeWriter(store, WriteJob.of(exchange, query, options), options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> ExchangeStreamWriter:
        options = self._write_options()
        if options.batch is not None:
            raise BadOption("Spark numbers the batches of a streaming query", option="batch")
        if options.stream_run:
            message = "the checkpoint says who writes a streaming query's batches"
            raise BadOption(message, option="streamRun")
        if options.query is not None and not options.initiator:
            raise BadOption("each batch of a streaming query is a query", option="query")
        store, exchange, initiator = self._prepare(options, schema)
        Ledger(store).ensure_format()
        query = QueryRecord(
            new_query() if options.query is None else options.query,
            initiator,
            options.stage,
            "replace" if overwrite else "append",
            now_ms(),
            options.lease_seconds,
        )
        given = {name.lower(): value for name, value in self.options.items()}
        return ExchangeStreamWriter(
            store,
            WriteJob.of(exchange, query, options),
            options,
            given.get("checkpointlocation"),
            storage_options(dict(self.options), self.conf),
        )

    def _write_options(self) -> WriteOptions:
        # The plugin passes a setting that nothing declares on by its full name.
        refuse_unknown_settings(self.options)
        options = WriteOptions.resolve(dict(self.options), self.conf)
        logger.info("write options: %s", options)
        return options

    def _prepare(
        self, options: WriteOptions, schema: StructType
    ) -> tuple[Store, ExchangeRecord, str]:
        """The store, the exchange as it is or will be, and the initiator, alive from now on."""
        store = self.store(unsafe_commit=options.unsafe_commit)
        arrow, loose = exchange_schema(schema, options.keys)
        exchange = prepare(store, options, arrow, loose.json())
        initiator = options.initiator or new_initiator(self.conf.get("spark.app.id", ""))
        if options.lease_seconds:
            leases.renew(store, initiator, options.lease_seconds)
        return store, exchange, initiator
