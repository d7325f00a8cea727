"""Compute the partition of every row of an exchange from the values of its keys."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ffq_spark.errors import CorruptPart
from ffq_spark.format.hashing import partition_ids
from ffq_spark.format.records import ExchangeRecord


def row_partitions(
    exchange: ExchangeRecord, batch: pa.RecordBatch, multiple: int = 1
) -> NDArray[np.int32]:
    """Compute the partition in which each row of a batch must lie.

    With `multiple`, compute the one in which it would lie among so many times the partitions.

    FFQ hashes the bits of a float, and equal floats may have different bits. Equal rows of a Z-set
    must be in the same partition, so their keys are normalised first, as in Spark's hash.

    >>> schema = pa.schema([("k", pa.float64()), ("w", pa.int64())])
    >>> rows = pa.record_batch({"k": [0.0, -0.0], "w": [1, -1]}, schema)
    >>> row_partitions(ExchangeRecord.of(schema, ["k"], 64, "ffq"), rows).tolist()
    [14, 19]
    >>> row_partitions(ExchangeRecord.of(schema, ["k"], 64, "ffq", weight="w"), rows).tolist()
    [14, 14]
    """
    keys = [batch.column(name) for name in exchange.keys]
    if exchange.weight is not None and exchange.hash == "ffq":
        keys = [_normalised(key) if pa.types.is_floating(key.type) else key for key in keys]
    return partition_ids(keys, exchange.partitions * multiple, exchange.hash)


def check_placed(exchange: ExchangeRecord, batch: pa.RecordBatch, reduce: int, path: str) -> None:
    """Raise CorruptPart if a row of a part belongs to another partition than the part's.

    In an exchange without keys every row may be in any partition.
    """
    if not exchange.keys:
        return
    misplaced = int(np.count_nonzero(row_partitions(exchange, batch) != reduce))
    if misplaced:
        message = f"{misplaced} rows belong to another partition than {reduce}"
        raise CorruptPart(f"{message} by hash={exchange.hash}", path=path)


def _normalised(column: pa.Array) -> pa.Array:
    """Replace -0.0 by 0.0, and every NaN by the same NaN."""
    zero, nan = (pa.scalar(value, column.type) for value in (0.0, math.nan))
    return pc.if_else(pc.is_nan(column), nan, pc.add(column, zero))
