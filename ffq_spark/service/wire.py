"""What travels in tickets, descriptors and actions: small JSON objects, taken apart strictly.

A name that is not declared, a value of another kind or a number out of range is refused before
anything is looked at. Exchanges have names, never paths.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, TypeVar

from ffq_spark.errors import BadRequest

_MAX_COUNT = (1 << 63) - 1
_MAX_LIST = 10_000
_EXCHANGE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}(/[A-Za-z0-9_][A-Za-z0-9._-]{0,199})?")

Decoded = TypeVar("Decoded", bound="Message")


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MAX_COUNT


def _is_flag(value: Any) -> bool:
    return type(value) is bool


def _is_list(item: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, list) and len(value) <= _MAX_LIST and all(map(item, value))
    )


def _is_scalar(value: Any) -> bool:
    return value is None or type(value) in (str, int, float, bool)


def _is_settings(value: Any) -> bool:
    return isinstance(value, dict) and len(value) <= 100 and all(map(_is_text, value.values()))


# By what the fields below are annotated with.
_KINDS: dict[str, Callable[[Any], bool]] = {
    "str": _is_text,
    "int": _is_count,
    "bool": _is_flag,
    "tuple[str, ...]": _is_list(_is_text),
    "tuple[int, ...]": _is_list(_is_count),
    "tuple[Any, ...]": _is_list(_is_scalar),
    "dict[str, str]": _is_settings,
}
_OPTIONAL = " | None"


@dataclass(frozen=True)
class Message:
    """A dataclass that is one JSON object.

    >>> Fetch.decode(b'{"kind": "fetch", "exchange": "a", "query": 1, "map_task": 0, "reduce": 3}')
    Fetch(exchange='a', query=1, map_task=0, reduce=3, stage=0, attempt=0, start_offset=0, \
max_bytes=0, chunk_bytes=65536, raw=True)
    >>> Attempt.decode(b'{"exchange": "../a", "query": 1, "map_task": 0}')
    Traceback (most recent call last):
    ffq_spark.errors.BadRequest: [FFQ_BAD_REQUEST] exchange='../a' is no name of an exchange
    """

    @classmethod
    def decode(cls: type[Decoded], data: bytes) -> Decoded:
        return cls.of(parse(data))

    @classmethod
    def of(cls: type[Decoded], document: Mapping[str, Any]) -> Decoded:
        """The message that a JSON object is."""
        given = {name: value for name, value in document.items() if name != "kind"}
        declared = {field.name: str(field.type) for field in fields(cls)}
        for name in given:
            if name not in declared:
                raise BadRequest(f"{cls.kind()} has no {_shown(name)}")
        needed = [f.name for f in fields(cls) if f.default is f.default_factory is MISSING]
        missing = [f"`{name}`" for name in needed if name not in given]
        if missing:
            raise BadRequest(f"{cls.kind()} needs {', '.join(missing)}")
        return cls(**{name: _value(name, declared[name], v) for name, v in given.items()})

    def encode(self) -> bytes:
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        told = {name: v for name, v in given.items() if v is not None and v != ()}
        return json.dumps({"kind": self.kind(), **told}).encode()

    @classmethod
    def kind(cls) -> str:
        return cls.__name__.lower()

    def __post_init__(self) -> None:
        exchange = getattr(self, "exchange", None)
        if exchange is not None and not _EXCHANGE.fullmatch(exchange):
            raise BadRequest(f"exchange={_shown(exchange)} is no name of an exchange")


def parse(data: bytes) -> dict[str, Any]:
    """A JSON object, or an error that says why it is none."""
    try:
        document = json.loads(data, object_pairs_hook=_once, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"not JSON: {type(error).__name__}") from None
    if not isinstance(document, dict):
        raise BadRequest("not a JSON object")
    return document


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is given twice")
    for text in (*found, *(value for value in found.values() if isinstance(value, str))):
        # An escaped half of a character has no UTF-8 form.
        text.encode()
    return found


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _value(name: str, kind: str, value: Any) -> Any:
    optional = kind.endswith(_OPTIONAL)
    if value is None and optional:
        return None
    kind = kind.removesuffix(_OPTIONAL)
    if not _KINDS[kind](value):
        raise BadRequest(f"`{name}` is {_shown(value)}")
    return tuple(value) if isinstance(value, list) else value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


@dataclass(frozen=True)
class Read(Message):
    """Which rows of an exchange; without steps those of the newest snapshot."""

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
    target_partition_bytes: int | None = None
    min_tasks: int | None = None
    max_tasks: int | None = None


@dataclass(frozen=True)
class Task(Message):
    """A ticket: parts `first` to `first + count` of a snapshot that never changes.

    `check` is the digest of these parts; `skip` rows were received before.
    """

    exchange: str
    first: int
    count: int
    check: int
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
    skip: int = 0

    @classmethod
    def within(cls, read: Read, first: int, count: int, check: int) -> Task:
        """A ticket for some of the parts of a read."""
        shared = {f.name for f in fields(cls)} & {f.name for f in fields(read)}
        given = {name: value for name, value in asdict(read).items() if name in shared}
        return cls(first=first, count=count, check=check, **given)

    def read(self) -> Read:
        """The read that this is a part of."""
        shared = {f.name for f in fields(self)} & {f.name for f in fields(Read)}
        return Read(**{name: value for name, value in asdict(self).items() if name in shared})


@dataclass(frozen=True)
class Fetch(Message):
    """FFQ's FetchShufflePartition: one part, as raw bytes in chunks or as batches.

    Attempt 0 is the latest, `max_bytes` 0 means to the end.
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
        if not 1 <= self.chunk_bytes <= 1 << 20:
            raise BadRequest("`chunk_bytes` is not between 1 and 1048576")
        if not self.raw and (self.start_offset or self.max_bytes):
            raise BadRequest("batches are given of a whole part: leave `start_offset` out")


@dataclass(frozen=True)
class Results(Message):
    """The rows that a query of `SubmitQuery` gave."""

    query: int


@dataclass(frozen=True)
class Attempt(Message):
    """Where a `do_put` goes: one attempt of one map task; attempt 0 is a new one."""

    exchange: str
    query: int
    map_task: int
    attempt: int = 0


@dataclass(frozen=True)
class Done(Message):
    """The last message of a `do_put`, as its metadata: a stream that is cut off has none."""

    rows: int


def decode_one(data: bytes, *kinds: type[Message]) -> Message:
    """A message of one of these kinds.

    >>> decode_one(b'{"kind": "results", "query": 5}', Task, Results)
    Results(query=5)
    """
    document = parse(data)
    for kind in kinds:
        if document.get("kind") == kind.kind():
            return kind.of(document)
    listing = ", ".join(kind.kind() for kind in kinds)
    raise BadRequest(f"`kind` is {_shown(document.get('kind'))}, not one of {listing}")
