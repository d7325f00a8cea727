"""Contenders that run without Spark: pyarrow, dask, DuckDB and Polars, planning, and S3."""

from __future__ import annotations

import pickle
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import inputs
from harness import Settings, Turn, Work, contender, dataset, serve, tree_bytes

PART_BYTES = 128 << 10


def counted(folder: str, kind: str = "parquet") -> int:
    import pyarrow.dataset as ds

    return ds.dataset(folder, format=kind).count_rows()


def drained(reader: Any) -> int:
    return sum(batch.num_rows for batch in reader)


# ---- write and read: DuckDB, Polars, dask


def duckdb_session(settings: Settings) -> Any:
    import duckdb

    limits = {"threads": settings.cores, "memory_limit": settings.driver_memory + "b"}
    return duckdb.connect(config=limits)


def save_duckdb(settings: Settings, path: str) -> None:
    rows = f"SELECT *, hash(k) % {settings.partitions} AS p"
    rows = f"{rows} FROM read_parquet('{settings.path('input')}/*.parquet')"
    with duckdb_session(settings) as session:
        session.execute(f"COPY ({rows}) TO '{path}' (FORMAT parquet, PARTITION_BY (p))")


def save_polars(settings: Settings, path: str) -> None:
    import polars as pl

    partition = (pl.col("k").hash() % settings.partitions).alias("p")
    rows = pl.scan_parquet(f"{settings.path('input')}/*.parquet")
    target = pl.PartitionBy(path, key=partition, include_key=False)
    rows.sink_ipc(target, mkdir=True, maintain_order=False)


@dataset("duckdb", needs=["input"])
def make_duckdb(settings: Settings, path: str) -> None:
    save_duckdb(settings, path)


@dataset("polars", needs=["input"])
def make_polars(settings: Settings, path: str) -> None:
    save_polars(settings, path)


@contender("write", "DuckDB partitioned Parquet", needs=["input"])
@contextmanager
def write_duckdb(settings: Settings) -> Iterator[Work]:
    yield Work(
        lambda turn: save_duckdb(settings, turn.folder),
        lambda turn: counted(turn.folder),
        lambda turn: tree_bytes(turn.folder),
    )


@contender("write", "Polars partitioned IPC", needs=["input"])
@contextmanager
def write_polars(settings: Settings) -> Iterator[Work]:
    yield Work(
        lambda turn: save_polars(settings, turn.folder),
        lambda turn: counted(turn.folder, "ipc"),
        lambda turn: tree_bytes(turn.folder),
    )


@contender("write", "dask P2P to Parquet", needs=["input"])
@contextmanager
def write_dask(settings: Settings) -> Iterator[Work]:
    import dask.dataframe as dd
    from dask.distributed import Client, LocalCluster

    place = {"host": "127.0.0.1", "dashboard_address": None}
    workers = {"n_workers": settings.cores, "threads_per_worker": 1, "memory_limit": "2GiB"}
    scratch = f"{settings.folder}/dask"
    with LocalCluster(**place, **workers, local_directory=scratch) as cluster, Client(cluster):

        def run(turn: Turn) -> None:
            rows = dd.read_parquet(settings.path("input"))
            shuffled = rows.shuffle("k", npartitions=settings.partitions, shuffle_method="p2p")
            shuffled.to_parquet(turn.folder, write_index=False)

        yield Work(run, lambda turn: counted(turn.folder), lambda turn: tree_bytes(turn.folder))


@contender("read", "DuckDB, its own Parquet", needs=["duckdb"])
@contextmanager
def read_duckdb(settings: Settings) -> Iterator[Work]:
    files = f"read_parquet('{settings.path('duckdb')}/*/*.parquet', hive_partitioning = false)"
    query = f"SELECT count(*), sum(k), sum(v), sum(i), sum(length(s)) FROM {files}"

    with duckdb_session(settings) as session:

        def run(turn: Turn) -> Any:
            return session.execute(query).fetchone()

        yield Work(run, lambda turn: run(turn)[0])


@contender("read", "Polars, its own IPC", needs=["polars"])
@contextmanager
def read_polars(settings: Settings) -> Iterator[Work]:
    import polars as pl

    def run(turn: Turn) -> Any:
        rows = pl.scan_ipc(f"{settings.path('polars')}/**/*.ipc", hive_partitioning=False)
        sums = pl.col("k", "v").sum(), pl.col("i").cast(pl.Int64).sum()
        return rows.select(pl.len(), *sums, pl.col("s").str.len_bytes().sum()).collect().row(0)

    yield Work(run, lambda turn: run(turn)[0])


# ---- lookup


@contender("lookup", "ours", needs=["exchange", "input"])
@contextmanager
def lookup_ours(settings: Settings) -> Iterator[Work]:
    import ffq_spark as ffq

    keys = inputs.lookup_keys(settings)
    root = settings.path("exchange")

    def run(turn: Turn) -> int:
        return ffq.Exchange(root).lookup(keys[turn.number]).num_rows

    yield Work(run, run)


@contender("lookup", "ours, full read without Spark", needs=["exchange"])
@contextmanager
def full_read(settings: Settings) -> Iterator[Work]:
    import ffq_spark as ffq

    root = settings.path("exchange")
    yield Work(lambda turn: drained(ffq.Exchange(root).read()))


@contender("lookup", "DuckDB, partition known", needs=["duckdb", "input"])
@contextmanager
def lookup_duckdb(settings: Settings) -> Iterator[Work]:
    keys = inputs.lookup_keys(settings)
    with duckdb_session(settings) as session:

        def run(turn: Turn) -> int:
            key = keys[turn.number]
            partition = f"SELECT hash({key}::BIGINT) % {settings.partitions}"
            (number,) = session.execute(partition).fetchone()
            files = f"read_parquet('{settings.path('duckdb')}/p={number}/*.parquet')"
            return len(session.execute(f"SELECT * FROM {files} WHERE k = {key}").fetchall())

        yield Work(run, run)


@contender("lookup", "pyarrow, unpartitioned Parquet", needs=["input"])
@contextmanager
def lookup_pyarrow(settings: Settings) -> Iterator[Work]:
    import pyarrow.dataset as ds

    keys = inputs.lookup_keys(settings)

    def run(turn: Turn) -> int:
        wanted = ds.field("k") == keys[turn.number]
        return ds.dataset(settings.path("input")).to_table(filter=wanted).num_rows

    yield Work(run, run)


# ---- planning: a step of many maps and many partitions, by its manifest alone


@dataset("planning")
def make_planning(settings: Settings, path: str) -> None:
    """Commit a step as `maps` tasks of a Spark write would. Its parts do not exist on disk."""
    import numpy as np

    from ffq_spark.exchange.ledger.ledger import Ledger
    from ffq_spark.exchange.write.job import WriteJob
    from ffq_spark.exchange.write.prepare import new_initiator, prepare
    from ffq_spark.options import WriteOptions
    from ffq_spark.store import Store

    generator = np.random.default_rng(inputs.SEED)
    schema = inputs.batch(generator, 1, 1).schema
    options = WriteOptions(keys=("k",), partitions=settings.maps)
    store = Store(path)
    exchange = prepare(store, options, schema)
    ledger = Ledger(store)
    job = WriteJob.of(exchange, ledger.begin("append", new_initiator()), options)
    outputs = [_output(job, map_task, generator) for map_task in range(settings.maps)]
    ledger.commit(job.query, exchange, outputs, job.stats_fields)


def _output(job: Any, map_task: int, generator: Any) -> Any:
    """Return the output of a map attempt: a part of about 128 KiB in each partition."""
    import pyarrow as pa

    from ffq_spark.exchange.ledger.sealing import AttemptOutput
    from ffq_spark.format import manifest
    from ffq_spark.format.columns import LEAST_BATCH_BYTES
    from ffq_spark.format.paths import AttemptId

    count = job.exchange.partitions
    id = AttemptId(job.query.query, job.query.stage, map_task, 1)
    schema = manifest.manifest_schema(job.stats_fields)
    sizes = generator.integers(PART_BYTES // 2, PART_BYTES * 3 // 2, count)
    has_directory = sizes >= LEAST_BATCH_BYTES
    columns: dict[str, Any] = {
        "stage": [id.stage] * count,
        "map_task": [id.map_task] * count,
        "attempt": [id.attempt] * count,
        "reduce": range(count),
        "file": [id.part(reduce) for reduce in range(count)],
        "offset": [0] * count,
        "bytes": sizes,
        "rows": sizes // 32,
        "batches": [1] * count,
        "checksum": generator.integers(0, 1 << 63, count),
        "tail_bytes": has_directory * 1024,
        "tail_checksum": has_directory * generator.integers(0, 1 << 63, count),
        "stats": [
            {field.name: {"min": low, "max": low + 1, "nulls": 0} for field in job.stats_fields}
            for low in generator.integers(0, 1 << 20, count).tolist()
        ],
    }
    arrays = [pa.array(columns[field.name]).cast(field.type) for field in schema]
    return AttemptOutput(id, manifest.encode(pa.table(arrays, schema=schema)))


@contender("planning", "ours", "pyarrow reads the manifest", needs=["planning"])
@contextmanager
def planning(settings: Settings) -> Iterator[tuple[Work, Work]]:
    """Plan, and read the manifest with pyarrow, in one process.

    Both use the same allocator and the same page cache.
    """
    import pyarrow as pa
    from pyspark.serializers import CloudPickleSerializer

    from ffq_spark.exchange.scan.snapshot import take_snapshot
    from ffq_spark.options import ReadOptions
    from ffq_spark.spark.reader import ExchangeReader
    from ffq_spark.spark.types import spark_schema
    from ffq_spark.store import Store

    root = settings.path("planning")
    first = take_snapshot(Store(root), ReadOptions())
    file = f"{root}/{first.steps[0].body.manifest}"
    schema = spark_schema(first.exchange)
    serializer = CloudPickleSerializer()

    def plan(turn: Turn) -> list[bytes]:
        reader = ExchangeReader(Store(root), ReadOptions(), schema)
        return [serializer.dumps(task) for task in reader.partitions()]

    def parts_planned(turn: Turn) -> int:
        return sum(pickle.loads(task).parts.num_rows for task in plan(turn))

    def facts(turn: Turn) -> dict[str, object]:
        tasks = plan(turn)
        return {
            "tasks": len(tasks),
            "plan_mb": round(sum(map(len, tasks)) / 1e6, 1),
            "manifest_mb": round(Path(file).stat().st_size / 1e6, 1),
            "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        }

    def read(turn: Turn) -> int:
        with pa.OSFile(file) as source:
            return pa.ipc.open_file(source).read_all().num_rows

    yield Work(plan, parts_planned, facts), Work(read, read)


# ---- s3: one exchange on an S3 server, without Spark


def _s3(settings: Settings, layout: str) -> Iterator[tuple[Work, Work]]:
    """Write with one map task for each input file, and read everything that was written last."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from s3server import S3Server

    import ffq_spark as ffq

    with S3Server() as server:
        files = sorted(Path(settings.path("input")).glob("*.parquet"))
        latest = ""

        def write(turn: Turn) -> None:
            nonlocal latest
            latest = f"s3://{server.bucket}/turn-{turn.number}"
            _write_maps(latest, server.storage_options, files, settings, layout)

        def read(turn: Turn) -> int:
            return drained(ffq.Exchange(latest, server.storage_options).read())

        yield Work(write, read), Work(read, read)


def _write_maps(
    root: str, storage: dict[str, Any], files: list[Path], settings: Settings, layout: str
) -> None:
    import pyarrow.parquet as pq

    from ffq_spark.exchange.ledger.ledger import Ledger
    from ffq_spark.exchange.write.attempt_writer import write_attempt
    from ffq_spark.exchange.write.commit import commit_write
    from ffq_spark.exchange.write.job import WriteJob
    from ffq_spark.exchange.write.prepare import new_initiator, prepare
    from ffq_spark.options import WriteOptions
    from ffq_spark.store import Store

    chosen = {"keys": "k", "partitions": str(settings.partitions)}
    if layout != "parts":
        chosen["layout"] = layout
    options = WriteOptions.resolve(chosen)
    store = Store(root, storage)
    exchange = prepare(store, options, pq.read_schema(files[0]))
    query = Ledger(store).begin("append", new_initiator())
    job = WriteJob.of(exchange, query, options)
    outputs = [
        write_attempt(store, job, number, 1, pq.ParquetFile(file).iter_batches())
        for number, file in enumerate(files)
    ]
    commit_write(store, job, outputs, options)


@contender(
    "s3", "write, parts", "read, parts", needs=["input"], when=lambda s: "parts" in s.layouts
)
@contextmanager
def s3_parts(settings: Settings) -> Iterator[tuple[Work, Work]]:
    yield from _s3(settings, "parts")


@contender(
    "s3", "write, packed", "read, packed", needs=["input"], when=lambda s: "packed" in s.layouts
)
@contextmanager
def s3_packed(settings: Settings) -> Iterator[tuple[Work, Work]]:
    yield from _s3(settings, "packed")


if __name__ == "__main__":
    serve()
