"""Compute Murmur3 hashes one by one, for rows that are much longer than the others."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

import numpy as np
import pyarrow as pa

from ffq_spark.format.hashing import mixing
from ffq_spark.format.hashing.key_types import is_bytes, is_list
from ffq_spark.format.hashing.words import (
    ByteRanges,
    Words,
    decimal_bytes,
    fixed_words,
    is_wide_decimal,
    spans,
    text_bytes,
    validity,
)

# Limits of the number of Python objects that exist at the same time.
_WORDS_AT_ONCE = 1 << 16
_ELEMENTS_AT_ONCE = 1 << 14

Message = tuple[list[int], int]
"""The scrambled words of one value, and its length in bytes."""


def hash_words(hash: int, words: Words) -> int:
    """Mix one row's words, in order, into a hash, without finishing it.

    >>> hash_words(42, np.array([1], np.uint32))
    652166518
    """
    for start in range(0, len(words), _WORDS_AT_ONCE):
        hash = mixing.absorb_all(hash, _scrambled(words[start : start + _WORDS_AT_ONCE]).tolist())
    return hash


def hash_elements(hash: int, elements: pa.Array) -> int:
    """Fold the elements of one list, in order, into a hash, and return the hash.

    >>> hash_elements(42, pa.array([1, None, 2]))
    3113790463
    """
    for start in range(0, len(elements), _ELEMENTS_AT_ONCE):
        for messages in _messages(elements.slice(start, _ELEMENTS_AT_ONCE)):
            for words, length in messages:
                hash = mixing.finish_one(mixing.absorb_all(hash, words), length)
    return hash


def _messages(array: pa.Array) -> Iterator[list[Message]]:
    """Yield the values to fold for each row: none for a null, several for a nested value."""
    kind = array.type
    if array.null_count == len(array) or (pa.types.is_struct(kind) and not kind.num_fields):
        return iter([[]] * len(array))
    if pa.types.is_struct(kind):
        rows = zip(*(_messages(child) for child in array.flatten()), strict=True)
        return (list(chain.from_iterable(row)) for row in rows)
    if is_list(kind):
        return _list_messages(array)
    if is_bytes(kind):
        return _drop_nulls(array, _byte_messages(text_bytes(array)))
    if is_wide_decimal(kind):
        return _drop_nulls(array, _byte_messages(decimal_bytes(array)))
    words = _scrambled(fixed_words(array))
    length = 4 * words.shape[1]
    return _drop_nulls(array, ((row, length) for row in words.tolist()))


def _list_messages(array: pa.Array) -> Iterator[list[Message]]:
    _, lengths = spans(array)
    elements = _messages(array.flatten())
    for length in lengths.tolist():
        yield list(chain.from_iterable(islice(elements, length)))


def _byte_messages(ranges: ByteRanges) -> Iterator[Message]:
    for start, length in zip(ranges.starts.tolist(), ranges.lengths.tolist(), strict=True):
        whole = length & ~3
        words = np.frombuffer(ranges.data, np.uint32, whole // 4, start)
        rest = ranges.data[start + whole : start + length].view(np.int8).astype(np.uint32)
        yield _scrambled(np.concatenate((words, rest))).tolist(), length


def _drop_nulls(array: pa.Array, messages: Iterator[Message]) -> Iterator[list[Message]]:
    valid = validity(array)
    if valid is None:
        return ([message] for message in messages)
    pairs = zip(messages, valid.tolist(), strict=True)
    return ([message] if present else [] for message, present in pairs)


def _scrambled(words: Words) -> Words:
    copy = np.array(words)
    mixing.scramble(copy, np.empty_like(copy))
    return copy
