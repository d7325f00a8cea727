"""Compare the service with a pyarrow Flight server that streams the same batches from memory.

python benchmarks/service.py [--rows N] [--rounds N]

Target: at least 0.7 of the throughput of the plain server.

Both servers are processes on loopback. One client reads from them in turns, after one warm-up each.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import pyarrow as pa
from pyarrow import flight

import ffq_spark as ffq
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.options import WriteOptions

TARGET = 0.7
PARTITIONS = 64


class PlainServer(flight.FlightServerBase):  # type: ignore[misc]
    """Stream batches from memory, without tickets, checks or limits."""

    def __init__(self, root: str) -> None:
        super().__init__("grpc+tcp://127.0.0.1:0")
        reader = ffq.Exchange(root).read()
        self._schema, self._batches = reader.schema, list(reader)

    def do_get(self, context: object, ticket: object) -> object:
        return flight.GeneratorStream(self._schema, iter(self._batches))


def serve_plain(root: str) -> None:
    """Run the plain server in this process, and print its URL."""
    server = PlainServer(root)
    print(json.dumps({"url": f"grpc+tcp://127.0.0.1:{server.port}"}), flush=True)
    server.serve()


def start(*command: str) -> tuple[subprocess.Popen[bytes], str]:
    """Start a server process and return it with its URL."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())["url"]


def read_seconds(client: flight.FlightClient, tickets: list[bytes], rows: int) -> float:
    """Read all tickets, check the number of rows, and return the seconds taken."""
    started = time.perf_counter()
    count = sum(chunk.data.num_rows for t in tickets for chunk in client.do_get(flight.Ticket(t)))
    assert count == rows
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--plain", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.plain:
        serve_plain(arguments.plain)
        return
    with tempfile.TemporaryDirectory(prefix="ffq-bench-") as root:
        numbers = np.arange(arguments.rows)
        batch = pa.record_batch({"id": numbers, "a": numbers * 1.5, "b": numbers % 1000})
        options = WriteOptions(keys=("id",), partitions=PARTITIONS)
        write_batches(root, batch_slices(batch), options=options)
        size = ffq.Exchange(root).info().bytes
        script = os.path.join(os.path.dirname(sys.executable), "ffq-spark")
        ours, our_url = start(script, "serve", f"x={root}", "--port", "0", "--json")
        theirs, their_url = start(sys.executable, __file__, "--plain", root)
        try:
            with ffq.connect(our_url) as connection, flight.FlightClient(their_url) as other:
                tickets = connection.exchange("x").tasks()
                times: dict[str, list[float]] = {"service": [], "plain": []}
                for number in range(arguments.rounds + 1):
                    for name, client, requests in (
                        ("service", connection.client, tickets),
                        ("plain", other, [b"x"]),
                    ):
                        taken = read_seconds(client, requests, arguments.rows)
                        times[name] += [taken] if number else []
        finally:
            for process in (ours, theirs):
                process.kill()
                process.wait()
    rates = {name: size / statistics.median(taken) / 1e6 for name, taken in times.items()}
    for name, rate in rates.items():
        spread = f"{min(times[name]):.2f} to {max(times[name]):.2f} s"
        print(f"{name:8} {rate:8.0f} MB/s   {spread} for {size / 1e6:.0f} MB")
    ratio = rates["service"] / rates["plain"]
    print(f"ratio    {ratio:8.2f}        target at least {TARGET}")


def batch_slices(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    return [batch.slice(first, 100_000) for first in range(0, batch.num_rows, 100_000)]


if __name__ == "__main__":
    main()
