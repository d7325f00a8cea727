"""Storage: any fsspec file system, with create-once and exact ranges."""

from ffq_spark.store.store import Entry, Store

__all__ = ["Entry", "Store"]
