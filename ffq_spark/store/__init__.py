"""Storage: any fsspec file system, with create-once and exact ranges."""

from ffq_spark.store.store import Directory, Entry, Store

__all__ = ["Directory", "Entry", "Store"]
