"""Checks of the settings for Python workers, Arrow batches and memory."""

from __future__ import annotations

from collections.abc import Iterator

from ffq_spark.health.facts import Facts, Finding
from ffq_spark.options import size

MIB = 1 << 20
_REUSE = "spark.python.worker.reuse"
_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_BYTES_DEFAULT = "64MB"
# Spark has no bound at exactly this value.
_UNBOUNDED = 2147483647
_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_ROWS_DEFAULT = 10_000
_FEW_ROWS, _MANY_ROWS = 1_000, 1_000_000
_OVERHEAD = "spark.executor.memoryOverhead"
_PYTHON_MEMORY = "spark.executor.pyspark.memory"
# The memory of a worker without its buffer: Python, Arrow, one batch and unfinished uploads.
_WORKER_BYTES = 256 * MIB


def check_workers(facts: Facts) -> Iterator[Finding]:
    """Find disabled reuse of Python workers: each task then imports all packages again."""
    if facts.get(_REUSE, "true").strip().lower() != "true":
        cost = "each task starts its own Python worker and imports all packages again"
        yield Finding(_REUSE, facts.get(_REUSE), "true", cost, f"--conf {_REUSE}=true")


def check_batches(facts: Facts) -> Iterator[Finding]:
    """Find harmful sizes of Arrow batches; writes through the plugin bound their own batches."""
    if facts.plugin_works:
        yield from _check_unbounded(facts)
    else:
        yield from _check_rows(facts)


def _check_unbounded(facts: Facts) -> Iterator[Finding]:
    now = facts.get(_BYTES, _BYTES_DEFAULT)
    try:
        unbounded = size(now) >= _UNBOUNDED
    except ValueError:
        return
    if unbounded:
        cost = (
            "Python jobs of the session fail with OversizedAllocationException where a batch of "
            "rows exceeds 2 GiB; exchanges do not become faster"
        )
        yield Finding(_BYTES, now, _BYTES_DEFAULT, cost, f"remove {_BYTES}")


def _check_rows(facts: Facts) -> Iterator[Finding]:
    try:
        rows = int(facts.get(_ROWS, str(_ROWS_DEFAULT)))
    except ValueError:
        return
    if rows <= 0 or rows >= _MANY_ROWS:
        held = "a whole partition" if rows <= 0 else f"{rows:,} rows"
        cost = f"{held} in one batch, held in the JVM and in Python, even if rows are large"
    elif rows < _FEW_ROWS:
        cost = f"{_ROWS_DEFAULT // rows} times as many batches, each with a fixed overhead"
    else:
        return
    remedy = f"--conf {_ROWS}={_ROWS_DEFAULT}"
    yield Finding(_ROWS, str(rows), str(_ROWS_DEFAULT), cost, remedy)


def check_memory(facts: Facts) -> Iterator[Finding]:
    """Find too little memory for all tasks of an executor to fill their buffers at once."""
    needed = facts.cores * (facts.buffer_bytes + _WORKER_BYTES)
    buffer, worker = facts.buffer_bytes // MIB, _WORKER_BYTES // MIB
    tasks = f"{facts.cores} tasks, each with maxBufferBytes={buffer}MiB and {worker} MiB more"
    wanted = f"{needed // MIB}m"
    if _PYTHON_MEMORY in facts.settings:
        available, name = facts.bytes(_PYTHON_MEMORY, ""), _PYTHON_MEMORY
        cost = f"{tasks}: a write fails with MemoryError before it spills"
    elif facts.in_containers:
        available, name = _overhead(facts), _OVERHEAD
        cost = f"{tasks}: the container is killed because it exceeds its memory"
    else:
        return
    if available < needed:
        remedy = f"--conf {name}={wanted}, or a smaller spark.ffq.maxBufferBytes"
        yield Finding(name, f"{available // MIB}m", f"at least {wanted}", cost, remedy)


def _overhead(facts: Facts) -> int:
    if _OVERHEAD in facts.settings:
        return facts.bytes(_OVERHEAD, "")
    usual = "0.4" if facts.master.startswith("k8s") else "0.1"
    factor = float(facts.get("spark.executor.memoryOverheadFactor", usual))
    heap = facts.bytes("spark.executor.memory", "1g")
    return max(int(heap * factor), facts.bytes("spark.executor.minMemoryOverhead", "384m"))
