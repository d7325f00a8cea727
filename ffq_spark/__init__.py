"""Keep shuffles as durable Arrow files that Spark and other programs read, with atomic commits.

>>> import ffq_spark as ffq
>>> from ffq_spark.examples import tiny_exchange
>>> ffq.Exchange(tiny_exchange().root).info().partitions
4
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ffq_spark.errors import FfqError

if TYPE_CHECKING:
    from ffq_spark.exchange.cut import cut
    from ffq_spark.exchange.exchange import Exchange
    from ffq_spark.service.client.connection import connect
    from ffq_spark.service.server.service import serve
    from ffq_spark.spark.doctor import doctor
    from ffq_spark.spark.session import configure, recommended_conf, register
    from ffq_spark.store import ReadTotals

__version__ = "0.1.0"

__all__ = [
    "Exchange",
    "FfqError",
    "ReadTotals",
    "__version__",
    "configure",
    "connect",
    "cut",
    "doctor",
    "recommended_conf",
    "register",
    "serve",
]

# Imported on first use. Some of them need pyspark or Flight, which may not be installed, and the
# Python processes that Spark starts for tasks and plans import this package but use none of them.
_LAZY = {
    "Exchange": "exchange.exchange",
    "ReadTotals": "store",
    "configure": "spark.session",
    "connect": "service.client.connection",
    "cut": "exchange.cut",
    "doctor": "spark.doctor",
    "recommended_conf": "spark.session",
    "register": "spark.session",
    "serve": "service.server.service",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        module = importlib.import_module(f"ffq_spark.{_LAZY[name]}")
        return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
