"""The index of one map attempt: FFQ's `index.json` and `index.bin`, versions 1 and 2."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ffq_spark.errors import CorruptIndex
from ffq_spark.format.paths import MAX_ATTEMPT, MAX_ID, AttemptId

_MAGIC = b"FFQI"
_VERSION = 1
_HEADER = struct.Struct("<4sII")
_CODECS = ("none", "lz4", "zstd")
_MAX_COUNT = (1 << 63) - 1
_MAX_REDUCE = (1 << 31) - 1


@dataclass(frozen=True)
class Chunk:
    """One frame of a version 2 part."""

    offset_bytes: int
    frame_bytes: int
    compressed_bytes: int
    uncompressed_bytes: int
    rows: int
    batches: int
    checksum32: int


@dataclass(frozen=True)
class IndexEntry:
    """One part. In version 1 `codec` is None, and the other version 2 fields have no meaning.

    For a part in a packed file, `packed` names the file and `offset` is the part's offset in it.
    `file` is then the name of a file that does not exist, so FFQ reports a missing file instead of
    reading another part.
    """

    reduce: int
    file: str
    bytes: int
    rows: int
    batches: int
    codec: str | None = None
    compressed_bytes: int = 0
    uncompressed_bytes: int = 0
    chunks: tuple[Chunk, ...] = ()
    packed: str | None = None
    offset: int = 0


@dataclass(frozen=True)
class MapTaskIndex:
    """All parts of one map attempt, ascending by reduce partition.

    >>> index = MapTaskIndex(AttemptId(1, 0, 0, 1), 99, ())
    >>> MapTaskIndex.from_bin(index.to_bin(), "index.bin") == index
    True
    """

    id: AttemptId
    created_at_ms: int
    entries: tuple[IndexEntry, ...] = field(default=())

    def to_json(self) -> bytes:
        """Encode `index.json` as FFQ does."""
        document = {
            "query_id": self.id.query,
            "stage_id": self.id.stage,
            "map_task": self.id.map_task,
            "attempt": self.id.attempt,
            "created_at_ms": self.created_at_ms,
            "partitions": [_entry_document(entry) for entry in self.entries],
        }
        return json.dumps(document, indent=2, ensure_ascii=False).encode()

    def to_bin(self) -> bytes:
        """Encode `index.bin`: a header, then the bytes of `index.json`."""
        body = self.to_json()
        return _HEADER.pack(_MAGIC, _VERSION, len(body)) + body

    @classmethod
    def from_bin(cls, data: bytes, path: str) -> MapTaskIndex:
        """Decode `index.bin`; ignore bytes after the payload, as FFQ does."""
        if len(data) < _HEADER.size:
            raise CorruptIndex("index.bin is too small to contain header", path=path)
        magic, version, length = _HEADER.unpack_from(data)
        if magic != _MAGIC:
            raise CorruptIndex("invalid index.bin magic", path=path)
        if version != _VERSION:
            raise CorruptIndex(f"index.bin decode failed: unknown version {version}", path=path)
        body = data[_HEADER.size : _HEADER.size + length]
        if len(body) != length:
            raise CorruptIndex("index.bin payload length is invalid", path=path)
        return cls._parse(body, path, "index.bin decode failed")

    @classmethod
    def from_json(cls, data: bytes, path: str) -> MapTaskIndex:
        """Decode `index.json`; ignore unknown keys."""
        return cls._parse(data, path, "index json decode failed")

    @classmethod
    def _parse(cls, body: bytes, path: str, failure: str) -> MapTaskIndex:
        try:
            document = json.loads(body.decode())
            index = cls(
                id=AttemptId(
                    _count(document, "query_id", limit=MAX_ID),
                    _count(document, "stage_id", limit=MAX_ID),
                    _count(document, "map_task", limit=MAX_ID),
                    _count(document, "attempt", limit=MAX_ATTEMPT),
                ),
                created_at_ms=_count(document, "created_at_ms", 0, limit=MAX_ID),
                entries=tuple(_parse_entry(item) for item in document["partitions"]),
            )
        except KeyError as error:
            raise CorruptIndex(f"{failure}: missing field {error}", path=path) from error
        except (ValueError, TypeError, AttributeError) as error:
            raise CorruptIndex(f"{failure}: {error}", path=path) from error
        reduces = [entry.reduce for entry in index.entries]
        if len(set(reduces)) != len(reduces):
            raise CorruptIndex(f"{failure}: a partition is listed twice", path=path)
        return index


def _entry_document(entry: IndexEntry) -> dict[str, Any]:
    document: dict[str, Any] = {
        "reduce_partition": entry.reduce,
        "file": entry.file,
        "bytes": entry.bytes,
    }
    if entry.codec is not None:
        document |= {
            "compressed_bytes": entry.compressed_bytes,
            "uncompressed_bytes": entry.uncompressed_bytes,
            "codec": entry.codec,
            "chunks": [vars(chunk) for chunk in entry.chunks],
        }
    document |= {"rows": entry.rows, "batches": entry.batches}
    if entry.packed is not None:
        document |= {"packed_file": entry.packed, "packed_offset": entry.offset}
    return document


def _parse_entry(item: Mapping[str, Any]) -> IndexEntry:
    codec = item.get("codec")
    if codec is not None and codec not in _CODECS:
        raise ValueError(f"unknown codec {codec!r}")
    packed = item.get("packed_file")
    if not isinstance(item["file"], str) or not isinstance(packed, (str, type(None))):
        raise TypeError("`file` or `packed_file` is not a string")
    return IndexEntry(
        reduce=_count(item, "reduce_partition", limit=_MAX_REDUCE),
        file=item["file"],
        bytes=_count(item, "bytes"),
        rows=_count(item, "rows"),
        batches=_count(item, "batches"),
        codec=codec,
        compressed_bytes=_count(item, "compressed_bytes", 0),
        uncompressed_bytes=_count(item, "uncompressed_bytes", 0),
        chunks=tuple(_parse_chunk(chunk) for chunk in item.get("chunks", ())),
        packed=packed,
        offset=0 if packed is None else _count(item, "packed_offset"),
    )


def _parse_chunk(item: Mapping[str, Any]) -> Chunk:
    return Chunk(**{name: _count(item, name) for name in Chunk.__dataclass_fields__})


def _count(
    item: Mapping[str, Any], name: str, default: int | None = None, *, limit: int = _MAX_COUNT
) -> int:
    value = item[name] if default is None else item.get(name, default)
    # Not isinstance, which accepts bool and is slower: gc checks a million of these numbers.
    if type(value) is not int or not 0 <= value <= limit:
        raise TypeError(f"`{name}` is not a number from 0 to {limit}")
    return value
