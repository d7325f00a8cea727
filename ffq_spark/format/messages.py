"""Parse the metadata of Arrow IPC messages, with the few parts of flatbuffers that it needs.

pyarrow reads only whole messages. To read single columns, or a body that does not fit in memory,
a reader needs the offsets and lengths before it reads the body.

The bytes come from storage and may be damaged. So every offset is compared with the end of the
message before it is used, and a wrong one raises ValueError.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

PREFIX = struct.Struct("<Ii")
"""The start of a message: a marker, and the length of the message's description."""
MARKER = 0xFFFFFFFF

_RECORD_BATCH = 3
_BYTE, _SHORT = struct.Struct("<B"), struct.Struct("<H")
_INT, _UINT, _LONG = struct.Struct("<i"), struct.Struct("<I"), struct.Struct("<q")
# Numbers of the fields of flatbuffers tables in Arrow's Message.fbs.
_HEADER_TYPE, _HEADER, _BODY_LENGTH, _METADATA = 1, 2, 3, 4
_BUFFERS, _COMPRESSION = 2, 3
_KEY, _VALUE = 0, 1
# A batch's head holds the offset in the body and the length of each buffer, 64 bits each.
_BUFFER_BYTES = 16


class BatchHead(NamedTuple):
    """The length of what precedes a batch's body, and the offsets of the fields that describe it.

    Attributes:
        length: the length of the head in bytes.
        body_length_at: the offset of the field with the body's length.
        buffers_at: the offset of the list of buffers.
        buffers: the number of buffers.
    """

    length: int
    body_length_at: int
    buffers_at: int
    buffers: int


def batch_head(message: memoryview) -> BatchHead:
    """Parse the head at the start of a batch's message.

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
        raise ValueError("the list of buffers exceeds the message's head")
    body_length = _field(head, table, _BODY_LENGTH)
    _read(_LONG, head, body_length)
    return BatchHead(len(head), body_length, start, count)


@dataclass(frozen=True)
class Description:
    """The description of a message, which precedes its body."""

    is_batch: bool
    body_bytes: int
    packed: tuple[tuple[int, int], ...]
    """The offsets and lengths of the buffers in the body that may be compressed."""

    def unpacked_bytes(self, body: memoryview) -> int:
        """Add up the uncompressed sizes of the body's buffers, which each begin with theirs."""
        total = 0
        for offset, length in self.packed:
            size = _read(_LONG, body, offset) if length else 0
            total += length if size < 0 else size
        return total


def describe(data: bytes) -> Description:
    """Parse a message's description, the bytes that follow the prefix.

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
    """Return the value of a key in the metadata of a batch's message."""
    head, table, _ = _batch(message)
    pairs = _follow(head, _field(head, table, _METADATA))
    for number in range(_read(_UINT, head, pairs)):
        pair = _follow(head, pairs + _UINT.size * (1 + number))
        if _text(head, _follow(head, _field(head, pair, _KEY))) == key:
            return _text(head, _follow(head, _field(head, pair, _VALUE)))
    raise ValueError(f"the metadata has no {key.decode()}")


def _batch(message: memoryview) -> tuple[memoryview, int, int]:
    """Return the head of a batch, and the offsets of the message's and the batch's table in it."""
    if len(message) < PREFIX.size:
        raise ValueError("the message is truncated")
    mark, length = PREFIX.unpack_from(message)
    if mark != MARKER or not 0 < length <= len(message) - PREFIX.size:
        raise ValueError("the data is no Arrow IPC message")
    head = message[: PREFIX.size + length]
    table = _follow(head, PREFIX.size)
    if _read(_BYTE, head, _field(head, table, _HEADER_TYPE)) != _RECORD_BATCH:
        raise ValueError("the message is no batch")
    return head, table, _follow(head, _field(head, table, _HEADER))


def _field(head: memoryview, table: int, number: int) -> int:
    place = _optional(head, table, number)
    if place is None:
        raise ValueError(f"field {number} of a table is missing")
    return place


def _optional(head: memoryview, table: int, number: int) -> int | None:
    """Return the offset of a table's field, or None if the field was left out."""
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
        raise ValueError("a string exceeds the message's head")
    return bytes(head[start:end])


def _read(form: struct.Struct, head: memoryview, place: int) -> int:
    if not 0 <= place <= len(head) - form.size:
        raise ValueError(f"offset {place} lies outside the message's head")
    return int(form.unpack_from(head, place)[0])
