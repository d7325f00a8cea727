"""Offsets of the sources that a stream's batch was made from, read from the Spark checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ffq_spark.errors import NoOffsets
from ffq_spark.format.records import Offsets
from ffq_spark.store import Store

_NONE = "-"


def batch_offsets(
    spark_checkpoint: str, batch: int, storage_options: Mapping[str, Any] | None = None
) -> Offsets:
    """Read the offsets before and after a batch, which Spark writes before it runs the batch."""
    store = Store(spark_checkpoint, storage_options)
    start, end = (_read(store, number) for number in (batch - 1, batch))
    if end is None:
        raise NoOffsets(
            f"batch {batch} has no offsets in the Spark checkpoint",
            path=store.url(f"offsets/{batch}"),
        )
    if start is None and batch > 0:
        message = f"batch {batch - 1} has no offsets in the Spark checkpoint"
        raise NoOffsets(message, path=store.url(f"offsets/{batch - 1}"))
    return Offsets(start or (), end)


def _read(store: Store, batch: int) -> tuple[str, ...] | None:
    data = store.read_optional(f"offsets/{batch}") if batch >= 0 else None
    return None if data is None else parse_offsets(data.decode(), store.url(f"offsets/{batch}"))


def parse_offsets(text: str, path: str) -> tuple[str, ...]:
    """Parse the offset of each source as JSON text, empty for a source without an offset yet.

    >>> parse_offsets('v1\\n{"batchWatermarkMs":0}\\n{"step":3}\\n-', "offsets/0")
    ('{"step":3}', '')
    """
    version, _, *lines = text.split("\n")
    if version == "v2":
        # Each line is `source:offset`, in any order.
        named = sorted((int(line.partition(":")[0]), line.partition(":")[2]) for line in lines)
        lines = [offset for _, offset in named]
    elif version != "v1":
        raise NoOffsets(
            f"the offsets have version {version}; only v1 and v2 are supported", path=path
        )
    return tuple("" if line == _NONE else line for line in lines)
