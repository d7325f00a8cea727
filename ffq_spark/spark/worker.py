"""What a Python worker of Spark does once, and which of Spark's workers this process is."""

from __future__ import annotations

import functools
import gc
import sys

_PUSHDOWN = "pyspark.sql.worker.data_source_pushdown_filters"


@functools.cache
def freeze_heap() -> None:
    """Spare Spark's daemon, which collects garbage after each task, all that is imported.

    At the end of a worker's first task: before it, much is not imported yet.
    """
    gc.collect()
    gc.freeze()


def pushes_filters() -> bool:
    """Whether Spark asks this process to push filters.

    A reader that has `pushFilters` makes Spark fail wherever the push-down is switched off. The
    push-down has a worker of its own, so only there the reader shows the method.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHDOWN in sys.modules or getattr(main, "name", None) == _PUSHDOWN
