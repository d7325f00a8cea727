"""Storage: any fsspec file system, with create-once, exact ranges and byte credits."""

from ffq_spark.store.credits import Credits
from ffq_spark.store.prefetch import ReadTotals
from ffq_spark.store.store import Directory, Entry, Leftover, Store

__all__ = ["Credits", "Directory", "Entry", "Leftover", "ReadTotals", "Store"]
