"""Makes `spark.read.format("ffqshuffle")` work with no registration call.

Spark imports every top-level module named `pyspark_*`; one that raises would hide all of them.
"""

try:
    from ffq_spark.spark.source import FfqShuffleSource as DefaultSource  # noqa: F401
except Exception:  # pragma: no cover
    import logging

    logging.getLogger(__name__).warning("ffqshuffle is not available", exc_info=True)
