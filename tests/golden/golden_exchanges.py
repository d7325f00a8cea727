"""Write the exchanges that every later version must be able to read and to append to.

Run `python tests/golden/golden_exchanges.py 0.1` once for each released form of the storage
format. An archive that is in the repository is never written again.
"""

from __future__ import annotations

import datetime
import decimal
import socket
import sys
import tarfile
import tempfile
from pathlib import Path

import pyarrow as pa

from ffq_spark import Exchange
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.options import WriteOptions

FOLDER = Path(__file__).parent
LOG_STEPS = 66


def rows(first: int, count: int = 10) -> pa.RecordBatch:
    """Build the rows with the ids from `first` on; the archives hold these very rows."""
    ids = list(range(first, first + count))
    day = datetime.date(2026, 1, 1)
    moment = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
    return pa.record_batch(
        {
            "id": pa.array(ids, pa.int64()),
            "name": pa.array([None if n % 5 == 0 else f"name {n}" for n in ids], pa.string()),
            "price": pa.array([n / 4 for n in ids], pa.float64()),
            "amount": pa.array([decimal.Decimal(n) / 100 for n in ids], pa.decimal128(12, 2)),
            "day": pa.array([day + datetime.timedelta(n) for n in ids], pa.date32()),
            "at": pa.array(
                [moment + datetime.timedelta(hours=n) for n in ids], pa.timestamp("us", "UTC")
            ),
            "raw": pa.array([bytes([n % 256, 255]) for n in ids], pa.binary()),
            "tags": pa.array([[f"t{n}", None][: n % 3] for n in ids], pa.list_(pa.string())),
            "place": pa.array(
                [{"x": n, "y": -n} for n in ids],
                pa.struct([("x", pa.int32()), ("y", pa.int32())]),
            ),
        }
    )


def weighted(values: list[int], weights: list[int]) -> pa.RecordBatch:
    """Build the rows of a Z-set."""
    return pa.record_batch({"id": pa.array(values, pa.int64()), "w": pa.array(weights, pa.int64())})


def write_all(folder: Path) -> None:
    """Write one exchange for each form that storage can take."""
    forms = {
        "parts": WriteOptions(keys=("id",), partitions=4, statistics=("all",)),
        "packed": WriteOptions(keys=("id", "name"), partitions=8, layout="packed", sort_by=("id",)),
        "ffq": WriteOptions(
            keys=("id",), partitions=4, hash="ffq", payload="ffqs", compression="zstd"
        ),
        "compressed": WriteOptions(keys=("id",), partitions=2, compression="lz4"),
    }
    for name, options in forms.items():
        for first in (0, 10):
            write_batches(str(folder / name), [rows(first)], options=options)

    stream = str(folder / "stream")
    for batch in range(3):
        options = WriteOptions(
            keys=("id",), partitions=2, stream_id="golden", stream_run="first", batch=batch
        )
        write_batches(stream, [rows(10 * batch)], options=options)
    Exchange(stream).hold(2, "golden-hold")

    versions = str(folder / "versions")
    options = WriteOptions(keys=("id",), partitions=2)
    for first in (0, 10):
        write_batches(versions, [rows(first)], options=options, mode="replace")
    Exchange(versions).rollback(1)

    zset = str(folder / "zset")
    options = WriteOptions(keys=("id",), partitions=2, weight_column="w")
    for batch in (weighted([1, 2, 3], [1, 1, 2]), weighted([1, 3], [-1, -1])):
        write_batches(zset, [batch], options=options)

    options = WriteOptions(keys=("id",), partitions=1)
    for number in range(LOG_STEPS):
        write_batches(str(folder / "log"), [rows(number, 1)], options=options)


def main(name: str) -> None:
    archive = FOLDER / f"{name}.tar.gz"
    if archive.exists():
        raise SystemExit(f"{archive.name} exists: choose the name of a new storage format")
    # Records name the host that wrote them.
    socket.gethostname = lambda: "golden"
    with tempfile.TemporaryDirectory() as folder:
        write_all(Path(folder))
        with tarfile.open(archive, "w:gz") as target:
            for entry in sorted(Path(folder).iterdir()):
                target.add(entry, entry.name)


if __name__ == "__main__":
    main(sys.argv[1])
