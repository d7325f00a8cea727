"""The data source `ffqshuffle`: it creates the readers and writers that Spark asks for."""

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
from ffq_spark.spark.types import (
    exchange_schema,
    output_columns,
    refuse_collated_keys,
    spark_schema,
)
from ffq_spark.spark.worker import pushes_filters
from ffq_spark.spark.writer import ExchangeWriter
from ffq_spark.store import Store

logger = logging.getLogger(__name__)


class FfqShuffleSource(DataSource):
    """`spark.read.format("ffqshuffle")` and `df.write.format("ffqshuffle")`.

    `conf` holds the session's `spark.ffq.*` settings at the time of `register(spark)`. Spark passes
    no conf to a Python source.
    """

    conf: ClassVar[Mapping[str, str]] = {}

    # The newest step when the DataFrame was created. All its scans share this object.
    _newest: int | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name of the data source, `ffqshuffle`."""
        return Source.FORMAT

    def store(self, *, unsafe_commit: bool = False) -> Store:
        """Open the store of this source's path."""
        settings: dict[str, Any] = storage_options(dict(self.options), self.conf)
        return Store(self.options.get("path", ""), settings, unsafe_commit=unsafe_commit)

    def schema(self) -> StructType:
        """Return the columns of a read, and fix the newest step that it sees."""
        options = self._read_options()
        exchange, self._newest = open_exchange(self.store(), options)
        check_readable(exchange, options)
        columns = spark_schema(exchange)
        return output_columns(columns, options.columns, options.metadata_columns)

    def reader(self, schema: StructType) -> ExchangeReader:
        """Return the reader of a batch query, with the columns that Spark wants."""
        options = self._read_options()
        # Without the plugin all scans of a DataFrame share the first one's plan, so filters prune
        # only on request.
        prunes = options.prune_by_filters and pushes_filters()
        reader = PushingReader if prunes else ExchangeReader
        return reader(self.store(), options, schema, self._newest)

    def _read_options(self) -> ReadOptions:
        return ReadOptions.resolve(dict(self.options), self.conf)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a stream of steps."""
        if pyspark.__version__.startswith("4.1."):
            message = f"a stream of steps needs Spark 4.2, and this is {pyspark.__version__}"
            raise Unsupported(f"{message}; use a newer Spark, or read steps in batches")
        from ffq_spark.spark.stream_reader import ExchangeStreamReader

        options = self._read_options()
        if options.merge_by:
            message = "the rows of a stream come in no order; leave the option out"
            raise BadOption(message, option="mergeBy")
        return ExchangeStreamReader(self.store(), options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> ExchangeWriter:
        """Check a batch write, begin its query and return its writer."""
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
        # The steward renews this lease and takes none.
        leases.take(store, query)
        return ExchangeWriter(store, WriteJob.of(exchange, query, options), options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> ExchangeStreamWriter:
        """Check one micro-batch's write and return its writer; its first task begins the query."""
        options = self._write_options()
        if options.batch is not None:
            message = "Spark numbers the batches of a streaming query; leave the option out"
            raise BadOption(message, option="batch")
        if options.stream_run:
            message = "the Spark checkpoint identifies a streaming query; leave the option out"
            raise BadOption(message, option="streamRun")
        if options.query is not None and not options.initiator:
            message = "each batch of a streaming query has its own query number"
            raise BadOption(f"{message}; leave the option out", option="query")
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
        # The steward renews this lease and takes none.
        leases.take(store, query)
        options_by_lower_name = {name.lower(): value for name, value in self.options.items()}
        return ExchangeStreamWriter(
            store,
            WriteJob.of(exchange, query, options),
            options,
            options_by_lower_name.get("checkpointlocation"),
            storage_options(dict(self.options), self.conf),
        )

    def _write_options(self) -> WriteOptions:
        # The plugin passes an unknown setting under its full name, so that it is refused here.
        refuse_unknown_settings(self.options)
        options = WriteOptions.resolve(dict(self.options), self.conf)
        logger.info("write options: %s", options)
        return options

    def _prepare(
        self, options: WriteOptions, schema: StructType
    ) -> tuple[Store, ExchangeRecord, str]:
        """Return the store, the exchange record and the initiator, after checking the write."""
        store = self.store(unsafe_commit=options.unsafe_commit)
        arrow_schema, stored_schema = exchange_schema(schema, options.keys)
        exchange = prepare(store, options, arrow_schema, stored_schema.json())
        # A later write may leave `keys` out and take them from the exchange.
        refuse_collated_keys(stored_schema, exchange.keys)
        initiator = options.initiator or new_initiator(self.conf.get("spark.app.id", ""))
        return store, exchange, initiator
