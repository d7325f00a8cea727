"""Compute the reduce partition of every row from its key columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ffq_spark.errors import BadOption
from ffq_spark.format.hashing import ffq_messages, murmur3
from ffq_spark.format.hashing.key_types import check_key_type

__all__ = [
    "KeyHashes",
    "check_key_type",
    "ffq_hash",
    "key_hashes",
    "partition_ids",
    "spark_hash",
]

# The arrays of one block stay in the processor's cache from one mixing step to the next.
_BLOCK_ROWS = 1 << 16


@dataclass(frozen=True)
class KeyHashes:
    """The hash of each row's keys, from which its partition follows for any number of them."""

    values: NDArray[np.int32] | NDArray[np.uint64]

    def partitions(self, count: int) -> NDArray[np.int32]:
        """Return the reduce partition of each row, out of `count` partitions.

        >>> hashes = key_hashes([pa.array([1, 2])])
        >>> hashes.partitions(64).tolist(), hashes.partitions(8).tolist()
        ([29, 24], [5, 0])
        """
        if not 1 <= count <= np.iinfo(np.int32).max:
            limit = np.iinfo(np.int32).max
            raise BadOption(f"partitions={count} must be from 1 to {limit}", option="partitions")
        if self.values.dtype == np.uint64:
            return np.mod(self.values, np.uint64(count)).astype(np.int32)
        if count & (count - 1) == 0:
            # For a power of two a mask gives the same result at a fraction of the cost.
            return self.values & np.int32(count - 1)
        return np.mod(self.values, np.int32(count))


def key_hashes(columns: Sequence[pa.Array], hash: str = "spark") -> KeyHashes:
    """Compute the hash of each row from its key columns."""
    if hash == "spark":
        return KeyHashes(spark_hash(columns))
    if hash == "ffq":
        return KeyHashes(ffq_hash(columns))
    raise BadOption(f"hash={hash!r} must be 'spark' or 'ffq'", option="hash")


def partition_ids(
    columns: Sequence[pa.Array], partitions: int, hash: str = "spark"
) -> NDArray[np.int32]:
    """Compute the reduce partition of each row from its key columns.

    With ``hash="spark"`` the partition is Spark's ``pmod(hash(k1, k2, ...), partitions)``. With
    ``hash="ffq"`` it is the partition that FFQ computes.

    >>> keys = pa.array([1, 2, None])
    >>> partition_ids([keys], 64).tolist()
    [29, 24, 42]
    >>> partition_ids([keys], 64, hash="ffq").tolist()
    [63, 54, 63]
    """
    return key_hashes(columns, hash).partitions(partitions)


def spark_hash(columns: Sequence[pa.Array]) -> NDArray[np.int32]:
    """Compute Spark's ``hash(k1, k2, ...)``: 32-bit Murmur3, seed 42, columns left to right.

    >>> spark_hash([pa.array([1, None]), pa.array(["a", None])]).tolist()
    [573093329, 42]
    """
    _check(columns, "spark")
    return _by_block(columns, murmur3.row_hashes, np.uint32).view(np.int32)


def ffq_hash(columns: Sequence[pa.Array]) -> NDArray[np.uint64]:
    """Compute FFQ's hash: SipHash-1-3 with a zero key over the tagged key values.

    >>> ffq_hash([pa.array(["hello", None])]).tolist()
    [16425425699014767418, 177042301552483903]
    """
    _check(columns, "ffq")
    return _by_block(columns, ffq_messages.row_hashes, np.uint64)


def _check(columns: Sequence[pa.Array], hash: str) -> None:
    if not columns:
        raise BadOption("a hash needs at least one key column", option="keys")
    if len({len(column) for column in columns}) > 1:
        raise ValueError("key columns differ in their number of rows")
    for number, column in enumerate(columns, start=1):
        check_key_type(f"key {number}", column.type, hash)


def _by_block(
    columns: Sequence[pa.Array],
    row_hashes: Callable[[Sequence[pa.Array]], NDArray[Any]],
    dtype: type[np.generic],
) -> NDArray[Any]:
    rows = len(columns[0])
    hashes = np.empty(rows, dtype)
    for start in range(0, rows, _BLOCK_ROWS):
        block = [column.slice(start, _BLOCK_ROWS) for column in columns]
        hashes[start : start + _BLOCK_ROWS] = row_hashes(block)
    return hashes
