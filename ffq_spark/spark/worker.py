"""Tune the Python worker of Spark that runs this process, and identify the kind of worker."""

from __future__ import annotations

import functools
import gc
import sys

_PUSHDOWN = "pyspark.sql.worker.data_source_pushdown_filters"


@functools.cache
def freeze_heap() -> None:
    """Exclude imported modules from Python's garbage collector.

    Spark's daemon collects garbage after each task. Call this at the end of a worker's first task,
    because earlier not all modules are imported.
    """
    gc.collect()
    gc.freeze()


def pushes_filters() -> bool:
    """Return whether this process is Spark's worker for filter push-down.

    Spark fails if a reader has `pushFilters` while push-down is switched off, so the reader has the
    method only in the worker that Spark starts for push-down.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHDOWN in sys.modules or getattr(main, "name", None) == _PUSHDOWN
