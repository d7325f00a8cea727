"""The steps of 32-bit Murmur3, for arrays (in place) and for single numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ffq_spark.format.hashing.words import Words

_C1, _C2 = 0xCC9E2D51, 0x1B873593
_ADD = 0xE6546B64
_F1, _F2 = 0x85EBCA6B, 0xC2B2AE35
_MASK = 0xFFFFFFFF


def scramble(words: Words, spare: Words) -> None:
    """Scramble input words, in place: the half of a step that does not depend on the hash."""
    np.multiply(words, _C1, out=words)
    _rotate(words, 15, spare)
    np.multiply(words, _C2, out=words)


def absorb(hashes: Words, words: Words, spare: Words) -> None:
    """Mix one word into each hash, in place; `words` is overwritten."""
    scramble(words, spare)
    np.bitwise_xor(hashes, words, out=hashes)
    _rotate(hashes, 13, spare)
    np.multiply(hashes, 5, out=hashes)
    np.add(hashes, _ADD, out=hashes)


def finish(hashes: Words, lengths: NDArray[Any] | int, spare: Words) -> None:
    """Finish each hash with the number of bytes that it absorbed, in place."""
    np.bitwise_xor(hashes, lengths, out=hashes)
    _fold_down(hashes, 16, spare)
    np.multiply(hashes, _F1, out=hashes)
    _fold_down(hashes, 13, spare)
    np.multiply(hashes, _F2, out=hashes)
    _fold_down(hashes, 16, spare)


def absorb_all(hash: int, scrambled: Iterable[int]) -> int:
    """Mix scrambled words, one after another, into one hash."""
    for word in scrambled:
        hash ^= word
        hash = ((hash << 13 | hash >> 19) * 5 + _ADD) & _MASK
    return hash


def finish_one(hash: int, length: int) -> int:
    """Finish one hash with the number of bytes that it absorbed.

    >>> finish_one(absorb_all(42, []), 0)
    142593372
    """
    hash ^= length
    hash = (hash ^ hash >> 16) * _F1 & _MASK
    hash = (hash ^ hash >> 13) * _F2 & _MASK
    return hash ^ hash >> 16


def _rotate(values: Words, bits: int, spare: Words) -> None:
    np.left_shift(values, bits, out=spare)
    np.right_shift(values, 32 - bits, out=values)
    np.bitwise_or(values, spare, out=values)


def _fold_down(values: Words, bits: int, spare: Words) -> None:
    np.right_shift(values, bits, out=spare)
    np.bitwise_xor(values, spare, out=values)
