"""Shuffle once, keep it: durable, open, exactly-once shuffles for Spark and everyone else.

>>> import ffq_spark as ffq
>>> from ffq_spark.examples import tiny_exchange
>>> ffq.Exchange(tiny_exchange().root).info().partitions
4
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ffq_spark.errors import FfqError
from ffq_spark.exchange.cut import cut
from ffq_spark.exchange.exchange import Exchange

if TYPE_CHECKING:
    from ffq_spark.spark.session import configure, recommended_conf, register

__version__ = "0.1.0"

__all__ = [
    "Exchange",
    "FfqError",
    "__version__",
    "configure",
    "cut",
    "recommended_conf",
    "register",
]

_NEED_SPARK = frozenset({"configure", "recommended_conf", "register"})


def __getattr__(name: str) -> Any:
    # Only these need pyspark; the rest works where it is not installed.
    if name in _NEED_SPARK:
        from ffq_spark.spark import session

        return getattr(session, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
