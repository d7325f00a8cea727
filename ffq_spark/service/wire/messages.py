"""Decode and encode tickets, descriptors and action bodies: small JSON objects with strict fields.

Decoding refuses undeclared names, values of another type and numbers out of range before anything
else looks at the message. Messages name exchanges, never paths.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar

from ffq_spark.errors import BadRequest
from ffq_spark.format.json_fields import (
    FieldTypeError,
    JsonLimits,
    constructor_arguments,
    is_checked,
    shorten,
)

_LIMITS = JsonLimits(integers=range(1 << 63), list_items=10_000, object_items=100)
_EXCHANGE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}(/[A-Za-z0-9_][A-Za-z0-9._-]{0,199})?")
_MAX_CHUNK_BYTES = 1 << 20

Decoded = TypeVar("Decoded", bound="Message")


@dataclass(frozen=True)
class Message:
    """A dataclass that is one JSON object; the class name in lower case is its `kind`.

    >>> Fetch.decode(b'{"kind": "fetch", "exchange": "a", "query": 1, "map_task": 0, "reduce": 3}')
    Fetch(exchange='a', query=1, map_task=0, reduce=3, stage=0, attempt=0, start_offset=0, \
max_bytes=0, chunk_bytes=65536, raw=True)
    >>> Attempt.decode(b'{"exchange": "../a", "query": 1, "map_task": 0}')
    Traceback (most recent call last):
    ffq_spark.errors.BadRequest: [FFQ_BAD_REQUEST] '../a' is not a valid exchange name: give NAME \
or NAME/NAME, of letters, digits, `.`, `_` and `-`. Correct the request; docs/service.md \
describes every one
    """

    def __init_subclass__(cls) -> None:
        # A field without a check would let callers send any value.
        for name, annotation in cls.__annotations__.items():
            if not is_checked(str(annotation)):
                raise TypeError(f"{cls.__name__}.{name}: values of {annotation} are not checked")

    def __post_init__(self) -> None:
        exchange = getattr(self, "exchange", None)
        if exchange is not None and not _EXCHANGE.fullmatch(exchange):
            raise BadRequest(
                f"{shorten(exchange)} is not a valid exchange name: give NAME or NAME/NAME, "
                "of letters, digits, `.`, `_` and `-`"
            )

    @classmethod
    def decode(cls: type[Decoded], data: bytes) -> Decoded:
        """Decode a message from JSON."""
        return cls.from_document(parse(data))

    @classmethod
    def from_document(cls: type[Decoded], document: Mapping[str, Any]) -> Decoded:
        """Decode a message from a parsed JSON object."""
        values = {name: value for name, value in document.items() if name != "kind"}
        declared = {field.name for field in fields(cls)}
        for name in values:
            if name not in declared:
                raise BadRequest(f"{cls.kind()} has no field {shorten(name)}")
        required = [f.name for f in fields(cls) if f.default is f.default_factory is MISSING]
        missing = [f"`{name}`" for name in required if name not in values]
        if missing:
            raise BadRequest(f"{cls.kind()} needs {', '.join(missing)}")
        try:
            return cls(**constructor_arguments(cls, values, _LIMITS))
        except FieldTypeError as error:
            raise BadRequest(str(error)) from None

    def encode(self) -> bytes:
        """Encode the message as JSON, without fields that are None or empty tuples."""
        values = {name: v for name, v in self._document().items() if v is not None and v != ()}
        return json.dumps({"kind": self.kind(), **values}).encode()

    def _document(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def kind(cls) -> str:
        """Return the value of `kind` in the message's JSON."""
        return cls.__name__.lower()


@dataclass(frozen=True)
class Selection(Message):
    """The rows and columns of an exchange that a read selects."""

    exchange: str
    columns: tuple[str, ...] = ()
    partitions: str | None = None
    steps: str | None = None
    as_of_step: int | None = None
    query: int | None = None
    stage: int | None = None
    attempt: str | None = None
    key: tuple[Any, ...] | None = None
    metadata_columns: bool = False
    consolidate: bool = False
    merge_by: tuple[str, ...] = ()

    def selection(self) -> dict[str, Any]:
        """Return the fields that reads and their tasks share, by name."""
        return {f.name: getattr(self, f.name) for f in fields(Selection)}


@dataclass(frozen=True)
class Read(Selection):
    """A request to plan a read; without steps it reads the newest snapshot."""

    target_partition_bytes: int | None = None
    min_tasks: int | None = None
    max_tasks: int | None = None
    split: str | None = None


@dataclass(frozen=True)
class Task(Selection):
    """A ticket for one read task: parts `first` to `first + count` of an immutable snapshot.

    `check` is the digest of these parts. The first `skip` rows are left out: the caller has them.
    With `shard` and `shards` the ticket has only the rows of one shard, by the hash of their keys.
    """

    first: int = field(kw_only=True)
    count: int = field(kw_only=True)
    check: int = field(kw_only=True)
    skip: int = field(kw_only=True, default=0)
    shard: int | None = field(kw_only=True, default=None)
    shards: int | None = field(kw_only=True, default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.shard is None) != (self.shards is None):
            raise BadRequest("`shard` and `shards` need each other")

    @classmethod
    def within(cls, read: Read, first: int, count: int, check: int) -> Task:
        """Create a ticket for some of the parts of a read."""
        return cls(first=first, count=count, check=check, **read.selection())

    def read(self) -> Read:
        """Return the read to which this task belongs."""
        return Read(**self.selection())

    def _document(self) -> dict[str, Any]:
        values = super()._document()
        # Tickets are compared as bytes, also with those of older servers: keep the order of names.
        leading = {name: values[name] for name in ("exchange", "first", "count", "check")}
        return {**leading, **values}


@dataclass(frozen=True)
class Fetch(Message):
    """FFQ's FetchShufflePartition: one part, as raw bytes in chunks or as batches.

    Attempt 0 is the latest; `max_bytes` 0 reads to the end of the part.
    """

    exchange: str
    query: int
    map_task: int
    reduce: int
    stage: int = 0
    attempt: int = 0
    start_offset: int = 0
    max_bytes: int = 0
    chunk_bytes: int = 64 << 10
    raw: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.chunk_bytes <= _MAX_CHUNK_BYTES:
            raise BadRequest(
                f"`chunk_bytes` must be between 1 and {_MAX_CHUNK_BYTES}, not {self.chunk_bytes}"
            )
        if not self.raw and (self.start_offset or self.max_bytes):
            raise BadRequest(
                "`start_offset` and `max_bytes` need `raw`: batches are read from whole parts"
            )


@dataclass(frozen=True)
class Results(Message):
    """The result rows of a statement that `SubmitQuery` accepted."""

    query: int


@dataclass(frozen=True)
class Attempt(Message):
    """The target of a `do_put`: one attempt of one map task; attempt 0 makes a new one."""

    exchange: str
    query: int
    map_task: int
    attempt: int = 0


@dataclass(frozen=True)
class Done(Message):
    """The metadata of the last message of a `do_put`. A stream that was cut off lacks it."""

    rows: int


def decode_one(data: bytes, *classes: type[Message]) -> Message:
    """Decode a message as the one of `classes` that its `kind` names.

    >>> decode_one(b'{"kind": "results", "query": 5}', Task, Results)
    Results(query=5)
    """
    document = parse(data)
    for cls in classes:
        if document.get("kind") == cls.kind():
            return cls.from_document(document)
    kinds = ", ".join(cls.kind() for cls in classes)
    raise BadRequest(f"`kind` must be one of {kinds}, not {shorten(document.get('kind'))}")


def parse(data: bytes) -> dict[str, Any]:
    """Parse one JSON object strictly: unique names, valid UTF-8, no NaN or Infinity.

    >>> parse(b'{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ffq_spark.errors.BadRequest: [FFQ_BAD_REQUEST] the request is not valid JSON: a name occurs \
twice. \
Correct the request; docs/service.md describes every one
    """
    try:
        document = json.loads(data, object_pairs_hook=_object, parse_constant=_refuse_constant)
    except _NotJson as error:
        raise BadRequest(f"the request is not valid JSON: {error}") from None
    except (ValueError, RecursionError) as error:
        # The message of a JSONDecodeError quotes the request.
        raise BadRequest(f"the request is not valid JSON: {type(error).__name__}") from None
    if not isinstance(document, dict):
        raise BadRequest("the request is JSON, but not an object")
    return document


class _NotJson(ValueError):
    pass


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise _NotJson("a name occurs twice")
    for text in (*document, *(value for value in document.values() if isinstance(value, str))):
        # Half of an escaped surrogate pair has no UTF-8 form; encoding raises a ValueError.
        text.encode()
    return document


def _refuse_constant(constant: str) -> Any:
    raise _NotJson(f"{constant} is not a JSON value")
