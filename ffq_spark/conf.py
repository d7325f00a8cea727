"""The Spark settings that belong to this product, declared once: fast Python sources, the bridge.

>>> sorted(BRIDGE)
['spark.plugins', 'spark.sql.extensions']
"""

from __future__ import annotations

from pathlib import Path

FAST = {
    # Exactly this value switches off a size computation after every row.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    # Over TCP each Python task waits about 40 ms for a delayed acknowledgement.
    "spark.python.unix.domain.socket.enabled": "true",
    # Lets equality on keys prune partitions and ranges prune parts.
    "spark.sql.python.filterPushdown.enabled": "true",
}

SPARK = "4.3."
"""The Spark that the jar is built for; on others the bridge stays off."""

BRIDGE = {
    "spark.plugins": "io.ffq.spark.FfqPlugin",
    "spark.sql.extensions": "io.ffq.spark.FfqExtensions",
}

# Spark's own patterns, and everything that reaches storage: Spark knows `storage.secret` for a
# secret, but not `storage.key`, and shows options in plans and settings in its event log.
_STORAGE = "^(spark[.]ffq[.])?storage[.]"
REDACTION = {
    "spark.redaction.regex": f"(?i)secret|password|token|access[.]?key|credential|{_STORAGE}",
    "spark.sql.redaction.options.regex": f"(?i)url|{_STORAGE}",
}


def jar_path() -> str:
    """Where the plugin's jar lies, as `spark.jars` wants it."""
    return str(Path(__file__).parent / "jars" / "ffq-spark.jar")


def flags() -> dict[str, str]:
    """Everything that spark-submit needs for the fast path and the bridge."""
    return {"spark.jars": jar_path(), **BRIDGE, **FAST, **REDACTION}
