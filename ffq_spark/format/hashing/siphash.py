"""Compute SipHash-1-3 with a zero key for many rows at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ffq_spark.format.hashing.rounds import Rounds, plan_rounds
from ffq_spark.format.hashing.words import Positions

Longs = NDArray[np.uint64]
State = tuple[int, int, int, int]

_START: State = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
_MASK = 0xFFFFFFFFFFFFFFFF
_FINAL_MARK = 0xFF
_FINAL_ROUNDS = 3
# Limits the number of Python objects that exist at the same time.
_WORDS_AT_ONCE = 1 << 16


def siphash_rows(prefix: int, words: Longs, starts: Positions, counts: Positions) -> Longs:
    """Compute the hash of each row's words, after the word `prefix` that all rows begin with.

    The words of a row are its padded message: the top byte of the last word holds the length.

    >>> null_key = np.array([9 << 56 | 5], np.uint64)
    >>> siphash_rows(1, null_key, np.array([0]), np.array([1])).tolist()
    [177042301552483903]
    """
    plan = plan_rounds(counts)
    starts, counts = starts[plan.order], counts[plan.order]
    state = np.empty((4, len(starts)), np.uint64)
    state[:] = np.array(_absorb_one(_START, prefix), np.uint64)[:, np.newaxis]
    _absorb_side_by_side(plan, words, starts.copy(), state)
    done = len(plan.firsts)
    for place in range(plan.long_from, len(starts)):
        begin = int(starts[place])
        left = words[begin + done : begin + int(counts[place])]
        state[:, place] = _absorb_many(state[:, place], left)
    hashes = np.empty(len(starts), np.uint64)
    hashes[plan.order] = _finish(state)
    return hashes


def _absorb_side_by_side(plan: Rounds, words: Longs, at: Positions, state: Longs) -> None:
    spare = np.empty(state.shape[1], np.uint64)
    for first in plan.firsts:
        active = state[:, first:]
        word = words.take(at[first:])
        np.bitwise_xor(active[3], word, out=active[3])
        _round(active, spare[first:])
        np.bitwise_xor(active[0], word, out=active[0])
        at[first:] += 1


def _finish(state: Longs) -> Longs:
    spare = np.empty(state.shape[1], np.uint64)
    np.bitwise_xor(state[2], _FINAL_MARK, out=state[2])
    for _ in range(_FINAL_ROUNDS):
        _round(state, spare)
    hashes: Longs = np.bitwise_xor.reduce(state, axis=0)
    return hashes


def _round(state: Longs, spare: Longs) -> None:
    v0, v1, v2, v3 = state
    _half_round(v0, v1, 13, spare)
    _half_round(v2, v3, 16, spare)
    _rotate(v0, 32, spare)
    _half_round(v0, v3, 21, spare)
    _half_round(v2, v1, 17, spare)
    _rotate(v2, 32, spare)


def _half_round(a: Longs, b: Longs, bits: int, spare: Longs) -> None:
    np.add(a, b, out=a)
    _rotate(b, bits, spare)
    np.bitwise_xor(b, a, out=b)


def _rotate(values: Longs, bits: int, spare: Longs) -> None:
    np.left_shift(values, bits, out=spare)
    np.right_shift(values, 64 - bits, out=values)
    np.bitwise_or(values, spare, out=values)


def _absorb_many(state: Longs, words: Longs) -> Longs:
    """Mix the words of one long row, one after another, into its state."""
    v0, v1, v2, v3 = state.tolist()
    running: State = (v0, v1, v2, v3)
    for start in range(0, len(words), _WORDS_AT_ONCE):
        for word in words[start : start + _WORDS_AT_ONCE].tolist():
            running = _absorb_one(running, word)
    return np.array(running, np.uint64)


def _absorb_one(state: State, word: int) -> State:
    v0, v1, v2, v3 = state
    v3 ^= word
    v0 = (v0 + v1) & _MASK
    v1 = (v1 << 13 & _MASK | v1 >> 51) ^ v0
    v0 = v0 << 32 & _MASK | v0 >> 32
    v2 = (v2 + v3) & _MASK
    v3 = (v3 << 16 & _MASK | v3 >> 48) ^ v2
    v0 = (v0 + v3) & _MASK
    v3 = (v3 << 21 & _MASK | v3 >> 43) ^ v0
    v2 = (v2 + v1) & _MASK
    v1 = (v1 << 17 & _MASK | v1 >> 47) ^ v2
    v2 = v2 << 32 & _MASK | v2 >> 32
    return v0 ^ word, v1, v2, v3
