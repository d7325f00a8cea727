"""Create a tiny exchange in memory, for examples in docstrings and for trying out the API."""

from __future__ import annotations

import pyarrow as pa

from ffq_spark.exchange.exchange import Exchange
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.options import WriteOptions


def tiny_exchange(root: str = "memory://ffq-tiny") -> Exchange:
    """Create an exchange with six rows in four partitions, sorted by `id`.

    >>> tiny_exchange().info().rows
    6
    """
    ids = list(range(6))
    batch = pa.record_batch({"id": ids, "name": [f"row {n}" for n in ids]})
    options = WriteOptions(keys=("id",), partitions=4, sort_by=("id",))
    write_batches(root, [batch], options=options, mode="replace")
    return Exchange(root)
