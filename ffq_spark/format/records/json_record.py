"""The base of all JSON records: encoding, decoding and checked construction."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, TypeVar

from ffq_spark.errors import CorruptRecord
from ffq_spark.format.json_fields import constructor_arguments
from ffq_spark.format.registered import Registered, take_registered

Record = TypeVar("Record", bound="JsonRecord")


@dataclass(frozen=True)
class JsonRecord:
    """A dataclass stored as one JSON file. Unknown keys are ignored, missing ones are errors."""

    def encode(self) -> bytes:
        """Encode the record as indented JSON."""
        return (json.dumps(asdict(self), indent=2, default=_plain) + "\n").encode()

    @classmethod
    def decode(cls: type[Record], data: bytes, path: str) -> Record:
        """Decode a record, or raise CorruptRecord that names the file."""
        try:
            return cls.from_document(_document(data))
        except (ValueError, TypeError, KeyError, AttributeError, CorruptRecord) as error:
            raise CorruptRecord(f"not a valid record: {_reason(error)}", path=path) from error

    @classmethod
    def from_document(cls: type[Record], document: Mapping[str, Any]) -> Record:
        """Build the record from its JSON object, checking every field's type."""
        return cls(**constructor_arguments(cls, document))


def _reason(error: Exception) -> str:
    if isinstance(error, CorruptRecord):
        return error.message
    # The text of a KeyError is only the key.
    return str(error) if isinstance(error, ValueError) else repr(error)


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
