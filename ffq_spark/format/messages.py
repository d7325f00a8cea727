"""What an Arrow IPC message says of itself, and where: as much of flatbuffers as that needs.

pyarrow reads a message whole or not at all. Single columns, and bodies that are too large to be
held, need to know before where things lie and how long they are.

Storage may hold anything, so every place is compared with the message's end before it is used, and
whatever does not fit is a ValueError.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

PREFIX = struct.Struct("<Ii")
"""What a message begins with: a marker, and the length of its description."""
MARKER = 0xFFFFFFFF

_RECORD_BATCH = 3
_BYTE, _SHORT = struct.Struct("<B"), struct.Struct("<H")
_INT, _UINT, _LONG = struct.Struct("<i"), struct.Struct("<I"), struct.Struct("<q")
# Fields of flatbuffers' tables, by their numbers in Arrow's Message.fbs.
_HEADER_TYPE, _HEADER, _BODY_LENGTH, _METADATA = 1, 2, 3, 4
_BUFFERS, _COMPRESSION = 2, 3
_KEY, _VALUE = 0, 1
# A buffer in a batch's head: where it lies in the body, and its length, 64 bits each.
_BUFFER_BYTES = 16


class BatchHead(NamedTuple):
    """What precedes the body of a batch: its length, and the places in it that tell of the body."""

    length: int
    body_length_at: int
    buffers_at: int
    buffers: int


def batch_head(message: memoryview) -> BatchHead:
    """The head that a batch's message begins with.

    >>> import pyarrow as pa
    >>> message = memoryview(pa.record_batch({"k": [1, 2], "name": ["a", "b"]}).serialize())
    >>> head = batch_head(message)
    >>> head.buffers, len(message) - head.length
    (5, 40)
    """
    head, table, batch = _batch(message)
    buffers = _follow(head, _field(head, batch, _BUFFERS))
    count = _read(_UINT, head, buffers)
    start = buffers + _UINT.size
    if count * _BUFFER_BYTES > len(head) - start:
        raise ValueError("its buffers reach beyond its head")
    body_length = _field(head, table, _BODY_LENGTH)
    _read(_LONG, head, body_length)
    return BatchHead(len(head), body_length, start, count)


@dataclass(frozen=True)
class Description:
    """A message but for its body."""

    is_batch: bool
    body_bytes: int
    packed: tuple[tuple[int, int], ...]
    """Where in the body the buffers lie that may be compressed: offsets and lengths."""

    def unpacked_bytes(self, body: memoryview) -> int:
        """How large the body's buffers are without compression: each begins with its length."""
        total = 0
        for offset, length in self.packed:
            size = _read(_LONG, body, offset) if length else 0
            total += length if size < 0 else size
        return total


def describe(data: bytes) -> Description:
    """What a message's description says, which follows the prefix.

    >>> import pyarrow as pa
    >>> message = pa.record_batch({"a": [1, 2]}).serialize().to_pybytes()
    >>> start, (_, length) = PREFIX.size, PREFIX.unpack_from(message)
    >>> described = describe(message[start : start + length])
    >>> described.is_batch, start + length + described.body_bytes == len(message)
    (True, True)
    """
    head = memoryview(data)
    table = _follow(head, 0)
    kind, body = (_optional(head, table, number) for number in (_HEADER_TYPE, _BODY_LENGTH))
    is_batch = kind is not None and _read(_BYTE, head, kind) == _RECORD_BATCH
    body_bytes = 0 if body is None else _read(_LONG, head, body)
    return Description(is_batch, body_bytes, _packed(head, table) if is_batch else ())


def _packed(head: memoryview, table: int) -> tuple[tuple[int, int], ...]:
    batch = _follow(head, _field(head, table, _HEADER))
    buffers = _optional(head, batch, _BUFFERS)
    if _optional(head, batch, _COMPRESSION) is None or buffers is None:
        return ()
    first = _follow(head, buffers)
    start = first + _UINT.size
    places = range(start, start + _read(_UINT, head, first) * _BUFFER_BYTES, _BUFFER_BYTES)
    return tuple((_read(_LONG, head, p), _read(_LONG, head, p + _LONG.size)) for p in places)


def metadata_value(message: memoryview, key: bytes) -> bytes:
    """What the metadata of a batch's message has for a key."""
    head, table, _ = _batch(message)
    pairs = _follow(head, _field(head, table, _METADATA))
    for number in range(_read(_UINT, head, pairs)):
        pair = _follow(head, pairs + _UINT.size * (1 + number))
        if _text(head, _follow(head, _field(head, pair, _KEY))) == key:
            return _text(head, _follow(head, _field(head, pair, _VALUE)))
    raise ValueError(f"it has no {key.decode()}")


def _batch(message: memoryview) -> tuple[memoryview, int, int]:
    """The head of a batch, with the places of the message's table and of the batch's in it."""
    if len(message) < PREFIX.size:
        raise ValueError("a message is cut")
    mark, length = PREFIX.unpack_from(message)
    if mark != MARKER or not 0 < length <= len(message) - PREFIX.size:
        raise ValueError("no message of a known kind")
    head = message[: PREFIX.size + length]
    table = _follow(head, PREFIX.size)
    if _read(_BYTE, head, _field(head, table, _HEADER_TYPE)) != _RECORD_BATCH:
        raise ValueError("a message is no batch")
    return head, table, _follow(head, _field(head, table, _HEADER))


def _field(head: memoryview, table: int, number: int) -> int:
    place = _optional(head, table, number)
    if place is None:
        raise ValueError("a field is missing")
    return place


def _optional(head: memoryview, table: int, number: int) -> int | None:
    """Where a table's field lies, None if it was left out."""
    slots = table - _read(_INT, head, table)
    slot = 2 * _SHORT.size + _SHORT.size * number
    offset = _read(_SHORT, head, slots + slot) if slot < _read(_SHORT, head, slots) else 0
    return table + offset if offset else None


def _follow(head: memoryview, place: int) -> int:
    return place + _read(_UINT, head, place)


def _text(head: memoryview, place: int) -> bytes:
    start = place + _UINT.size
    end = start + _read(_UINT, head, place)
    if end > len(head):
        raise ValueError("a text reaches beyond its head")
    return bytes(head[start:end])


def _read(form: struct.Struct, head: memoryview, place: int) -> int:
    if not 0 <= place <= len(head) - form.size:
        raise ValueError("a place lies outside of its head")
    return int(form.unpack_from(head, place)[0])
