"""The records of an exchange: its format, its keys, partitions and schema."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from ffq_spark.errors import CorruptRecord, FutureFormat
from ffq_spark.format.records.json_record import JsonRecord

FORMAT_VERSION = 1
FEATURES: frozenset[str] = frozenset()
HASHES = ("spark", "ffq")


@dataclass(frozen=True)
class FormatRecord(JsonRecord):
    """The format and features of an exchange, and how its store creates a file once."""

    create_once: str
    format: int = FORMAT_VERSION
    min_reader: int = 1
    min_writer: int = 1
    features: tuple[str, ...] = ()

    def check_reader(self, path: str) -> None:
        """Raise FutureFormat if this version cannot read the exchange."""
        self._check(self.min_reader, "reading", path)

    def check_writer(self, path: str) -> None:
        """Raise FutureFormat if this version cannot write to the exchange."""
        self._check(self.min_writer, "writing", path)

    def _check(self, needed: int, work: str, path: str) -> None:
        unknown = sorted(set(self.features) - FEATURES)
        if needed > FORMAT_VERSION or unknown:
            wants = f"format {needed}" + (f" and {', '.join(unknown)}" if unknown else "")
            message = f"{work} needs {wants}; this version knows format {FORMAT_VERSION}"
            raise FutureFormat(message, path=path)


@dataclass(frozen=True)
class ExchangeRecord(JsonRecord):
    """The constants of an exchange: how rows are placed in partitions, and their schema."""

    keys: tuple[str, ...]
    partitions: int
    hash: str
    fields: tuple[str, ...]
    arrow_schema: str
    spark_schema: str | None = None
    weight: str | None = None

    @classmethod
    def of(
        cls,
        schema: pa.Schema,
        keys: Iterable[str],
        partitions: int,
        hash: str = "spark",
        spark_schema: str | None = None,
        weight: str | None = None,
    ) -> ExchangeRecord:
        """Create the record of a new exchange.

        >>> record = ExchangeRecord.of(pa.schema([("k", pa.int64())]), ["k"], 8)
        >>> record.fields, record.schema.names
        (('k int64',), ['k'])
        """
        return cls(
            keys=tuple(keys),
            partitions=partitions,
            hash=hash,
            fields=tuple(f"{field.name} {field.type}" for field in schema),
            arrow_schema=base64.b64encode(schema.serialize()).decode(),
            spark_schema=spark_schema,
            weight=weight,
        )

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ExchangeRecord:
        record = super().from_document(document)
        names = record.schema.names
        # Only names are compared: Arrow's names of types differ between its versions.
        pairs = zip(record.fields, names, strict=True)
        if not all(text.startswith(f"{name} ") for text, name in pairs):
            raise ValueError("`fields` and `arrow_schema` disagree")
        needed = {*record.keys, *([record.weight] if record.weight else [])}
        if not needed <= set(names):
            raise ValueError("a key or the weight is no column")
        if record.partitions < 1 or record.hash not in HASHES:
            allowed = f"partitions must be at least 1 and hash one of {', '.join(HASHES)}"
            raise ValueError(f"{allowed}; the record has {record.partitions} and {record.hash!r}")
        return record

    def __getstate__(self) -> dict[str, Any]:
        # An unpickled Arrow schema is not always equal to its original.
        return {name: value for name, value in self.__dict__.items() if name != "schema"}

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the exchange's rows."""
        try:
            data = base64.b64decode(self.arrow_schema, validate=True)
            return pa.ipc.read_schema(pa.py_buffer(data))
        except (ValueError, OSError, pa.ArrowException) as error:
            raise CorruptRecord(f"the Arrow schema cannot be read: {error}") from error
