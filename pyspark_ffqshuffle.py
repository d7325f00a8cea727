"""Makes `spark.read.format("ffqshuffle")` work without a registration call.

Spark imports every top-level module named `pyspark_*`. If one of them raises, Spark finds none.
"""

try:
    from ffq_spark.spark.source import FfqShuffleSource as DefaultSource  # noqa: F401
except Exception:  # pragma: no cover
    import logging

    logging.getLogger(__name__).warning("ffqshuffle is not available", exc_info=True)
