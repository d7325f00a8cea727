"""Compute Spark's 32-bit Murmur3 hash for whole Arrow columns at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ffq_spark.format.hashing import mixing, sequential
from ffq_spark.format.hashing.key_types import is_bytes, is_list
from ffq_spark.format.hashing.rounds import Rounds, plan_rounds
from ffq_spark.format.hashing.words import (
    ByteRanges,
    Positions,
    Words,
    decimal_bytes,
    fixed_words,
    is_wide_decimal,
    spans,
    text_bytes,
    validity,
)

_SEED = 42


def row_hashes(columns: Sequence[pa.Array]) -> Words:
    """Compute the hash of each row, from columns of supported types and equal lengths.

    >>> row_hashes([pa.array([1, None])]).tolist()
    [2582647965, 42]
    """
    hashes = np.full(len(columns[0]), _SEED, np.uint32)
    for column in columns:
        fold(column, hashes)
    return hashes


def fold(array: pa.Array, hashes: Words) -> None:
    """Fold one value into each hash, in place; a null does not change its hash."""
    if array.null_count == len(array):
        return
    if pa.types.is_struct(array.type):
        for child in array.flatten():
            fold(child, hashes)
    elif is_list(array.type):
        _fold_lists(array, hashes)
    else:
        _fold_leaves(array, hashes)


def _fold_leaves(array: pa.Array, hashes: Words) -> None:
    valid = validity(array)
    before = None if valid is None else hashes.copy()
    if is_bytes(array.type):
        _fold_bytes(text_bytes(array), hashes)
    elif is_wide_decimal(array.type):
        _fold_bytes(decimal_bytes(array), hashes)
    else:
        _fold_words(fixed_words(array), hashes)
    if valid is not None and before is not None:
        np.copyto(hashes, before, where=~valid)


def _fold_words(words: Words, hashes: Words) -> None:
    spare = np.empty_like(hashes)
    for column in words.T:
        mixing.absorb(hashes, column.copy(), spare)
    mixing.finish(hashes, 4 * words.shape[1], spare)


def _fold_bytes(ranges: ByteRanges, hashes: Words) -> None:
    _absorb_whole_words(ranges, hashes)
    _absorb_last_bytes(ranges, hashes)
    mixing.finish(hashes, ranges.lengths.astype(np.uint32), np.empty_like(hashes))


def _absorb_whole_words(ranges: ByteRanges, hashes: Words) -> None:
    counts = ranges.lengths >> 2
    plan = plan_rounds(counts)
    starts = ranges.starts[plan.order]
    running = hashes[plan.order]
    _absorb_side_by_side(plan, ranges.data.view(np.uint32), starts, running)
    done = len(plan.firsts)
    for place in range(plan.long_from, len(running)):
        left = int(counts[plan.order[place]]) - done
        words = np.frombuffer(ranges.data, np.uint32, left, int(starts[place]) + 4 * done)
        running[place] = sequential.hash_words(int(running[place]), words)
    hashes[plan.order] = running


def _absorb_side_by_side(plan: Rounds, data: Words, starts: Positions, running: Words) -> None:
    """Absorb one word of every active row in each round.

    Rows start at any byte, but numpy gathers only aligned words quickly. So each word is combined
    from two aligned words, and the second one is kept as the first one of the next round.
    """
    at = starts >> 2
    right = ((starts & 3) << 3).astype(np.uint32)
    left = 32 - right
    current = data.take(at)
    spare = np.empty_like(running)
    for first in plan.firsts:
        active = slice(first, None)
        np.add(at[active], 1, out=at[active])
        following = data.take(at[active])
        words = np.right_shift(current[active], right[active])
        np.left_shift(following, left[active], out=spare[active])
        np.bitwise_or(words, spare[active], out=words)
        mixing.absorb(running[active], words, spare[active])
        current[active] = following


def _absorb_last_bytes(ranges: ByteRanges, hashes: Words) -> None:
    """Absorb each byte after the last whole word as a separate signed number, as Spark does."""
    rest = ranges.lengths & 3
    ends = ranges.starts + (ranges.lengths & ~3)
    for byte in range(3):
        rows = np.flatnonzero(rest > byte)
        if not len(rows):
            return
        words = ranges.data.take(ends[rows] + byte).view(np.int8).astype(np.uint32)
        running = hashes[rows]
        mixing.absorb(running, words, np.empty_like(running))
        hashes[rows] = running


def _fold_lists(array: pa.Array, hashes: Words) -> None:
    starts, lengths = spans(array)
    plan = plan_rounds(lengths)
    starts, lengths = starts[plan.order], lengths[plan.order]
    running = hashes[plan.order]
    for position, first in enumerate(plan.firsts):
        elements = array.values.take(pa.array(starts[first:] + position))
        fold(elements, running[first:])
    done = len(plan.firsts)
    for place in range(plan.long_from, len(running)):
        left = array.values.slice(int(starts[place]) + done, int(lengths[place]) - done)
        running[place] = sequential.hash_elements(int(running[place]), left)
    hashes[plan.order] = running
