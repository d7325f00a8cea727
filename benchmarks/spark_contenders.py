"""Contenders that run in Spark: exchanges, bucketed tables, Parquet and Spark's own shuffle."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

import inputs
from harness import Settings, Turn, Work, contender, dataset, serve, tree_bytes

TINY_TASKS = 256
TINY_ROWS = 32 * TINY_TASKS
ARROW_BYTES_PER_ROW = 34


@contextmanager
def session(settings: Settings, *, tuned: bool = False) -> Iterator[Any]:
    """Start a session on loopback, tuned by `ffq.configure` or with Spark's defaults."""
    from pyspark.sql import SparkSession

    import ffq_spark as ffq

    conf = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": settings.driver_memory,
        "spark.local.dir": f"{settings.folder}/spark",
        "spark.sql.warehouse.dir": f"{settings.folder}/warehouse",
        # A small trial must join as the full run does, without a broadcast.
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.shuffle.partitions": str(settings.partitions),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master(f"local[{settings.cores}]").config(map=conf)
    spark = (ffq.configure(builder) if tuned else builder).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()


def to_noop(rows: Any) -> None:
    """Compute every row and every column, and discard them."""
    rows.write.format("noop").mode("overwrite").save()


def exchange(spark: Any, root: str, **options: object) -> Any:
    return spark.read.format("ffqshuffle").options(**options).load(root)


def save_exchange(rows: Any, root: str, partitions: int, **options: object) -> None:
    options = {"keys": "k", "partitions": partitions, **options}
    rows.write.format("ffqshuffle").options(**options).mode("append").save(root)


def save_bucketed(rows: Any, name: str, path: str, partitions: int) -> None:
    rows.write.bucketBy(partitions, "k").option("path", path).saveAsTable(name)


def bucketed(spark: Any, name: str, columns: str, settings: Settings) -> Any:
    """Declare a bucketed table over files that another session wrote.

    The catalog of that session is gone.
    """
    buckets = f"CLUSTERED BY (k) INTO {settings.partitions} BUCKETS"
    place = f"LOCATION '{settings.path(name)}'"
    spark.sql(f"CREATE TABLE {name.replace('-', '_')} ({columns}) USING parquet {buckets} {place}")
    return spark.table(name.replace("-", "_"))


INPUT_COLUMNS = "k BIGINT, v DOUBLE, i INT, s STRING"
SECOND_COLUMNS = "k BIGINT, w DOUBLE"


# ---- what is kept


@dataset("exchange", needs=["input"])
def make_exchange(settings: Settings, path: str) -> None:
    with session(settings, tuned=True) as spark:
        save_exchange(spark.read.parquet(settings.path("input")), path, settings.partitions)


@dataset("second-exchange", needs=["second"])
def make_second_exchange(settings: Settings, path: str) -> None:
    with session(settings, tuned=True) as spark:
        save_exchange(spark.read.parquet(settings.path("second")), path, settings.partitions)


@dataset("bucketed", needs=["input"])
def make_bucketed(settings: Settings, path: str) -> None:
    with session(settings) as spark:
        rows = spark.read.parquet(settings.path("input"))
        save_bucketed(rows, "kept", path, settings.partitions)


@dataset("second-bucketed", needs=["second"])
def make_second_bucketed(settings: Settings, path: str) -> None:
    with session(settings) as spark:
        rows = spark.read.parquet(settings.path("second"))
        save_bucketed(rows, "kept", path, settings.partitions)


@dataset("tiny-exchange")
def make_tiny(settings: Settings, path: str) -> None:
    """Write a few rows into each of many partitions."""
    with session(settings, tuned=True) as spark:
        rows = spark.createDataFrame(
            [(n, f"row {n}") for n in range(TINY_ROWS)], "k LONG, s STRING"
        )
        save_exchange(rows.coalesce(1), path, TINY_TASKS)


# ---- write: hash-partitioned by k and kept


def counted(folder: str) -> int:
    import pyarrow.dataset as ds

    return ds.dataset(folder, format="parquet").count_rows()


@contender("write", "ours", needs=["input"])
@contextmanager
def write_ours(settings: Settings) -> Iterator[Work]:
    import ffq_spark as ffq

    with session(settings, tuned=True) as spark:
        rows = spark.read.parquet(settings.path("input"))
        yield Work(
            lambda turn: save_exchange(rows, turn.folder, settings.partitions),
            lambda turn: sum(batch.num_rows for batch in ffq.Exchange(turn.folder).read()),
            lambda turn: tree_bytes(turn.folder),
        )


@contender("write", "Spark bucketBy", needs=["input"])
@contextmanager
def write_bucketed(settings: Settings) -> Iterator[Work]:
    with session(settings) as spark:
        rows = spark.read.parquet(settings.path("input"))

        def run(turn: Turn) -> None:
            save_bucketed(rows, f"turn{turn.number}", turn.folder, settings.partitions)

        yield Work(run, lambda turn: counted(turn.folder), lambda turn: tree_bytes(turn.folder))


@contender("write", "Spark repartition to Parquet", needs=["input"])
@contextmanager
def write_parquet(settings: Settings) -> Iterator[Work]:
    with session(settings) as spark:
        rows = spark.read.parquet(settings.path("input")).repartition(settings.partitions, "k")
        yield Work(
            lambda turn: rows.write.parquet(turn.folder),
            lambda turn: counted(turn.folder),
            lambda turn: tree_bytes(turn.folder),
        )


@contender("write", "Spark shuffle, not kept", needs=["input"])
@contextmanager
def write_nowhere(settings: Settings) -> Iterator[Work]:
    with session(settings) as spark:
        rows = spark.read.parquet(settings.path("input")).repartition(settings.partitions, "k")
        yield Work(lambda turn: to_noop(rows))


# ---- read: all rows and columns


@contender("read", "ours, verify=full", needs=["exchange"])
@contextmanager
def read_ours(settings: Settings) -> Iterator[Work]:
    with session(settings, tuned=True) as spark:
        root = settings.path("exchange")
        yield Work(
            lambda turn: to_noop(exchange(spark, root, verify="full")),
            lambda turn: exchange(spark, root).count(),
            lambda turn: {"tasks": exchange(spark, root).rdd.getNumPartitions()},
        )


@contender("read", "Spark Parquet scan", needs=["input"])
@contextmanager
def read_parquet(settings: Settings) -> Iterator[Work]:
    with session(settings) as spark:
        path = settings.path("input")
        yield Work(
            lambda turn: to_noop(spark.read.parquet(path)),
            lambda turn: spark.read.parquet(path).count(),
            lambda turn: {"tasks": spark.read.parquet(path).rdd.getNumPartitions()},
        )


@contender("read", "Spark bucketed table", needs=["bucketed"])
@contextmanager
def read_bucketed(settings: Settings) -> Iterator[Work]:
    with session(settings) as spark:
        rows = bucketed(spark, "bucketed", INPUT_COLUMNS, settings)
        yield Work(
            lambda turn: to_noop(rows),
            lambda turn: rows.count(),
            lambda turn: {"tasks": rows.rdd.getNumPartitions()},
        )


# ---- lookup: the rows of one key


@contender("lookup", "ours in Spark", needs=["exchange", "input"])
@contextmanager
def lookup_ours(settings: Settings) -> Iterator[Work]:
    with session(settings, tuned=True) as spark:
        rows = exchange(spark, settings.path("exchange"))
        yield _spark_lookup(rows, inputs.lookup_keys(settings))


@contender("lookup", "Spark bucketed table", needs=["bucketed", "input"])
@contextmanager
def lookup_bucketed(settings: Settings) -> Iterator[Work]:
    with session(settings) as spark:
        rows = bucketed(spark, "bucketed", INPUT_COLUMNS, settings)
        yield _spark_lookup(rows, inputs.lookup_keys(settings))


def _spark_lookup(rows: Any, keys: list[int]) -> Work:
    def find(turn: Turn) -> list[Any]:
        return rows.where(f"k = {keys[turn.number]}").collect()

    return Work(find, lambda turn: len(find(turn)))


# ---- join: kept data joined by key and grouped by key


@contender("join", "ours", needs=["exchange", "second-exchange"])
@contextmanager
def join_ours(settings: Settings) -> Iterator[Work]:
    with session(settings, tuned=True) as spark:
        roots = settings.path("exchange"), settings.path("second-exchange")
        yield _join(*(exchange(spark, root) for root in roots))


@contender("join", "Spark bucketed tables", needs=["bucketed", "second-bucketed"])
@contextmanager
def join_bucketed(settings: Settings) -> Iterator[Work]:
    with session(settings) as spark:
        yield _join(
            bucketed(spark, "bucketed", INPUT_COLUMNS, settings),
            bucketed(spark, "second-bucketed", SECOND_COLUMNS, settings),
        )


@contender("join", "Spark Parquet + shuffle", needs=["input", "second"])
@contextmanager
def join_parquet(settings: Settings) -> Iterator[Work]:
    with session(settings) as spark:
        yield _join(*(spark.read.parquet(settings.path(name)) for name in ("input", "second")))


def _join(rows: Any, second: Any) -> Work:
    grouped = rows.join(second, "k").groupBy("k").agg({"v": "sum", "w": "max", "i": "max"})

    def totals(turn: Turn) -> list[object]:
        row = grouped.selectExpr("count(*)", "sum(`max(i)`)", "round(sum(`sum(v)`), 3)").first()
        return list(row)

    def shuffles(turn: Turn) -> dict[str, object]:
        plan = grouped._jdf.queryExecution().executedPlan().toString()
        return {"shuffles": plan.count("Exchange hashpartitioning")}

    return Work(lambda turn: to_noop(grouped), totals, shuffles)


# ---- tasks: many tiny read tasks


@contender("tasks", "tuned by ffq.configure", needs=["tiny-exchange"])
@contextmanager
def tasks_tuned(settings: Settings) -> Iterator[Work]:
    with session(settings, tuned=True) as spark:
        yield _tiny_tasks(spark, settings)


@contender("tasks", "Spark's defaults", needs=["tiny-exchange"])
@contextmanager
def tasks_default(settings: Settings) -> Iterator[Work]:
    with session(settings) as spark:
        yield _tiny_tasks(spark, settings)


def _tiny_tasks(spark: Any, settings: Settings) -> Work:
    root = settings.path("tiny-exchange")
    options = {"minTasks": TINY_TASKS, "targetPartitionBytes": 1}

    def shape(turn: Turn) -> list[int]:
        rows = exchange(spark, root, **options)
        return [rows.rdd.getNumPartitions(), rows.count()]

    return Work(lambda turn: to_noop(exchange(spark, root, **options)), shape)


# ---- memory: the largest Python worker of a write whose rows exceed its buffer several times


def _memory(settings: Settings, partitions: int) -> Iterator[Work]:
    import ffq_spark as ffq
    from ffq_spark.options import WriteOptions

    buffer = WriteOptions.resolve({"maxBufferBytes": settings.buffer}).max_buffer_bytes
    copies = -(-4 * buffer // (settings.rows * ARROW_BYTES_PER_ROW))
    with session(settings, tuned=True) as spark:
        # One task writes all rows.
        once = spark.read.parquet(settings.path("input"))
        rows = reduce(type(once).union, [once] * copies).coalesce(1)

        def run(turn: Turn) -> None:
            save_exchange(rows, turn.folder, partitions, maxBufferBytes=settings.buffer)

        def facts(turn: Turn) -> dict[str, object]:
            peak = max(_peak_kib(pid) for pid in _task_workers())
            return {
                "peak_mib": round(peak / 1024, 1),
                "buffer_mib": buffer / (1 << 20),
                "rows": ffq.Exchange(turn.folder).info().rows,
                **tree_bytes(turn.folder),
            }

        yield Work(run, None, facts)


@contender("memory", "64 partitions", needs=["input"])
@contextmanager
def memory_64(settings: Settings) -> Iterator[Work]:
    yield from _memory(settings, 64)


@contender("memory", "4,000 partitions", needs=["input"])
@contextmanager
def memory_4000(settings: Settings) -> Iterator[Work]:
    yield from _memory(settings, 4_000)


def _task_workers() -> list[int]:
    """Return the Python workers of this Spark. They outlive the tasks that they ran."""
    import psutil

    wanted = {"pyspark.daemon", "pyspark.worker"}
    below = psutil.Process().children(recursive=True)
    # A worker that ended is a zombie until its daemon reaps it.
    alive = [child for child in below if child.status() != psutil.STATUS_ZOMBIE]
    return [child.pid for child in alive if wanted <= set(child.cmdline())]


def _peak_kib(pid: int) -> int:
    (line,) = (
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmHWM:")
    )
    return int(line.split()[1])


if __name__ == "__main__":
    serve()
