"""The JSON records under `_ffq/`: small, for people, created once and never changed."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any, TypeVar

import pyarrow as pa

from ffq_spark.errors import CorruptRecord, FutureFormat
from ffq_spark.format.json_fields import constructor_arguments
from ffq_spark.format.registered import Registered, Run, take_registered

FORMAT_VERSION = 1
FEATURES: frozenset[str] = frozenset()
HASHES = ("spark", "ffq")

Record = TypeVar("Record", bound="JsonRecord")


@dataclass(frozen=True)
class JsonRecord:
    """A dataclass that is one JSON file. Unknown keys are ignored, missing ones are an error."""

    def encode(self) -> bytes:
        return (json.dumps(asdict(self), indent=2, default=_plain) + "\n").encode()

    @classmethod
    def decode(cls: type[Record], data: bytes, path: str) -> Record:
        try:
            return cls.from_document(_document(data))
        except (ValueError, TypeError, KeyError, AttributeError, CorruptRecord) as error:
            raise CorruptRecord(f"not a valid record: {error!r}", path=path) from error

    @classmethod
    def from_document(cls: type[Record], document: Mapping[str, Any]) -> Record:
        return cls(**constructor_arguments(cls, document))


def _document(data: bytes) -> Any:
    rest, registered = take_registered(data)
    if registered is None:
        return json.loads(data)
    return json.loads(
        rest, object_hook=lambda d: {**d, "registered": registered} if "registered" in d else d
    )


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Registered):
        return list(value)
    raise TypeError(f"{type(value).__name__} has no place in a record")


@dataclass(frozen=True)
class FormatRecord(JsonRecord):
    """What a program must understand to touch this exchange, and how the store creates once."""

    create_once: str
    format: int = FORMAT_VERSION
    min_reader: int = 1
    min_writer: int = 1
    features: tuple[str, ...] = ()

    def check_reader(self, path: str) -> None:
        self._check(self.min_reader, "reading", path)

    def check_writer(self, path: str) -> None:
        self._check(self.min_writer, "writing", path)

    def _check(self, needed: int, work: str, path: str) -> None:
        unknown = sorted(set(self.features) - FEATURES)
        if needed > FORMAT_VERSION or unknown:
            wants = f"format {needed}" + (f" and {', '.join(unknown)}" if unknown else "")
            message = f"{work} needs {wants}; this version knows format {FORMAT_VERSION}"
            raise FutureFormat(message, path=path)


@dataclass(frozen=True)
class ExchangeRecord(JsonRecord):
    """What never changes in an exchange: how rows find their partition, and what a row is."""

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
        """Describe an exchange.

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
        # Names alone: Arrow's words for types differ between its versions.
        pairs = zip(record.fields, names, strict=True)
        if not all(text.startswith(f"{name} ") for text, name in pairs):
            raise ValueError("`fields` and `arrow_schema` disagree")
        needed = {*record.keys, *([record.weight] if record.weight else [])}
        if not needed <= set(names):
            raise ValueError("a key or the weight is no column")
        if record.partitions < 1 or record.hash not in HASHES:
            raise ValueError(f"{record.partitions} partitions by {record.hash}")
        return record

    def __getstate__(self) -> dict[str, Any]:
        # Arrow's pickles of schemas are not always equal to what they were made of.
        return {name: value for name, value in self.__dict__.items() if name != "schema"}

    @cached_property
    def schema(self) -> pa.Schema:
        try:
            data = base64.b64decode(self.arrow_schema, validate=True)
            return pa.ipc.read_schema(pa.py_buffer(data))
        except (ValueError, OSError, pa.ArrowException) as error:
            raise CorruptRecord(f"the Arrow schema cannot be read: {error}") from error


@dataclass(frozen=True)
class QueryRecord(JsonRecord):
    """Opens a query, before its first task writes."""

    query: int
    initiator: str
    stage: int
    mode: str
    created_at_ms: int
    lease_seconds: int = 0

    @property
    def id(self) -> QueryId:
        return QueryId(self.initiator, self.query)


@dataclass(frozen=True)
class JobRecord(JsonRecord):
    """What all map tasks of a query agree on, where no Spark driver tells them.

    `exchange` is the exchange's record as it is or will be, `options` those of the write.
    """

    query: int
    exchange: str
    options: str


@dataclass(frozen=True)
class QueryId:
    """A query's full name: who started it, and its number."""

    initiator: str
    local: int


@dataclass(frozen=True)
class CancelRecord(JsonRecord):
    """Asks the initiator to end a query."""

    query: int
    who: str
    code: str
    message: str
    at_ms: int


@dataclass(frozen=True)
class LeaseRecord(JsonRecord):
    """Says that an initiator lived when it was last renewed. The only record that changes."""

    initiator: str
    seconds: int
    renewed_at_ms: int

    @property
    def expires_at_ms(self) -> int:
        return self.renewed_at_ms + self.seconds * 1000


class Outcome(Enum):
    """How a query ended. Exactly one is ever recorded."""

    COMMITTED = "COMMITTED"
    ABORTED = "ABORTED"
    CANCELED = "CANCELED"
    LOST = "LOST"


@dataclass(frozen=True)
class StreamBatch(JsonRecord):
    """Which batch of which stream a step is, and the order-free digest of its rows.

    `epoch` is the first that the batch's owner had; all batches of an owner are recorded in it.
    """

    stream: str
    epoch: int
    batch: int
    rows: int
    hash_sum: int
    hash_xor: int


@dataclass(frozen=True)
class OwnerRecord(JsonRecord):
    """Gives a stream to one owner for an epoch that begins with batch `first`."""

    stream: str
    epoch: int
    owner: str
    first: int
    at_ms: int


@dataclass(frozen=True)
class BatchRecord(JsonRecord):
    """Makes one query's output a stream's batch: whoever creates it first decides for ever."""

    query: int
    rows: int
    hash_sum: int
    hash_xor: int


@dataclass(frozen=True)
class Offsets(JsonRecord):
    """What a batch was made from: the offsets of its sources before and after, in Spark's words."""

    start: tuple[str, ...]
    end: tuple[str, ...]


@dataclass(frozen=True)
class StepBody(JsonRecord):
    """A step before it has a number: everything that decides which rows it holds.

    `registered` names one attempt for each map task. `restores` is the step whose snapshot a
    rollback brings back. By `sort_by` each part is sorted.
    """

    query: int
    mode: str
    stage: int
    rows: int
    bytes: int
    parts: int
    registered: Registered
    manifest: str
    manifest_bytes: int
    manifest_checksum: int
    committed_at_ms: int
    restores: int = 0
    sort_by: tuple[str, ...] = ()
    stream: StreamBatch | None = None
    offsets: Offsets | None = None

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> StepBody:
        body = super().from_document(document)
        stream, offsets = document.get("stream"), document.get("offsets")
        return replace(
            body,
            registered=_registered(body.registered),
            stream=None if stream is None else StreamBatch.from_document(stream),
            offsets=None if offsets is None else Offsets.from_document(offsets),
        )

    @property
    def attempts(self) -> dict[int, int]:
        """Map task to registered attempt."""
        return {
            map_task: attempt
            for first, last, attempt in self.registered
            for map_task in range(first, last + 1)
        }


def _registered(value: Any) -> Registered:
    if isinstance(value, Registered):
        return value
    return Registered(_run(run) for run in value)


def _run(run: Any) -> Run:
    first, last, attempt = (int(number) for number in run)
    return first, last, attempt


@dataclass(frozen=True)
class OutcomeRecord(JsonRecord):
    """Ends a query. `nonce` tells a committer its own retried write from another's.

    `after` is the newest step that existed before this outcome: the query's step, if it has one,
    comes later. `exchange` is set where the exchange had no record yet: the query brings one.
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

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> OutcomeRecord:
        record = super().from_document(document)
        step, exchange = document.get("step"), document.get("exchange")
        return replace(
            record,
            outcome=Outcome(record.outcome),
            step=None if step is None else StepBody.from_document(step),
            exchange=None if exchange is None else ExchangeRecord.from_document(exchange),
        )


@dataclass(frozen=True)
class StepRecord(JsonRecord):
    """One entry of the log. `base` is the first step that is visible together with this one."""

    step: int
    version: int
    base: int
    body: StepBody

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> StepRecord:
        record = super().from_document(document)
        body = StepBody.from_document(document["body"])
        extends = body.mode == "append" and record.step > 1
        if not 1 <= record.base <= record.step - extends:
            raise ValueError(f"step {record.step} cannot begin at step {record.base}")
        return replace(record, body=body)

    @classmethod
    def following(cls, last: StepRecord | None, body: StepBody) -> StepRecord:
        """The next entry of the log: an append extends the version, a replace begins one."""
        number = last.step + 1 if last else 1
        if last is None or body.mode == "replace":
            return cls(number, last.version + 1 if last else 1, number, body)
        return cls(number, last.version, last.base, body)


@dataclass(frozen=True)
class NewestRecord(JsonRecord):
    """A step that exists: where to look for the newest from. It changes, and may be behind."""

    step: int
