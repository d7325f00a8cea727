"""Helpers of the service's tests: rows, tokens, server processes, a raw gRPC caller, memory."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psutil
import pyarrow as pa
from layouts import write_options

import ffq_spark as ffq
from ffq_spark import Exchange
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.service.auth.tokens import new_token
from ffq_spark.service.client.connection import Connection
from ffq_spark.service.client.write import RemoteWrite
from ffq_spark.service.server.service import Service

PARTITIONS = 8
MANY = 2_000
COMMAND = f"{os.path.dirname(sys.executable)}/ffq-spark"


def rows(first: int, count: int, width: int = 8) -> pa.RecordBatch:
    ids = list(range(first, first + count))
    return pa.record_batch(
        {"id": ids, "group": [i % 7 for i in ids], "name": [f"{i:0{width}d}" for i in ids]}
    )


def random_rows(count: int, width: int) -> pa.RecordBatch:
    """Return rows with random texts, which codecs cannot compress."""
    texts = np.random.default_rng(1).integers(32, 127, count * width, np.uint8)
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    names = pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(texts))
    ids = np.arange(count)
    return pa.record_batch({"id": ids, "group": ids % 7, "name": names})


def write(root: str, batch: pa.RecordBatch, mode: str = "append", **options: Any) -> Exchange:
    storage = options.pop("storage", None)
    given = {"keys": ("id",), "partitions": PARTITIONS, **options}
    write_batches(root, [batch], options=write_options(**given), mode=mode, storage_options=storage)
    return Exchange(root, storage)


SCHEMA = rows(0, 1).schema


def begin(service: Connection, **options: Any) -> RemoteWrite:
    """Begin a write to the exchange `made` of a service."""
    given = {"keys": "id", "partitions": PARTITIONS, **options}
    return service.exchange("made").begin(SCHEMA, **given)


def sorted_rows(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: tuple(map(str, row.values())))


def token_file(
    directory: Path, **granted: tuple[list[str], list[str] | None]
) -> tuple[str, dict[str, str]]:
    """Write a file of tokens with these scopes and roots; return its path and the secrets."""
    made = {name: new_token(name, *arguments) for name, arguments in granted.items()}
    path = directory / "tokens.json"
    path.write_text(json.dumps([entry for _, entry in made.values()]))
    path.chmod(0o600)
    return str(path), {name: secret for name, (secret, _) in made.items()}


def until(condition: Callable[[], Any]) -> None:
    """Wait for a condition; the time-out of the test ends the wait if it never comes."""
    while not condition():
        time.sleep(0.01)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ServerProcess:
    """A process of `ffq-spark serve` that can be killed and started again."""

    def __init__(self, *arguments: str, port: int = 0) -> None:
        self._command = [COMMAND, "serve", "--json", "--port", str(port), *arguments]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the server ended with exit code {self.process.wait()}"
        self.url = json.loads(line)["url"]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def serving(*arguments: str, port: int = 0) -> Iterator[ServerProcess]:
    """Run `ffq-spark serve` while the block runs."""
    server = ServerProcess(*arguments, port=port)
    try:
        yield server
    finally:
        server.kill()


def with_one_reader(root: str, **options: Any) -> tuple[Service, Connection, Any]:
    """Serve an exchange with one reader slot, which a reader holds that has read one batch.

    The server's credits are few, so the server stalls until that reader reads on.
    """
    options = {"port": 0, "server_credits": 1 << 20, "max_readers": 1, **options}
    service = ffq.serve({"x": root}, **options)
    connection = ffq.connect(service.url, retries=0)
    reader = connection.exchange("x").read()
    reader.read_next_batch()
    return service, connection, reader


class Caller:
    """A gRPC caller without Flight's client, to see the statuses on the wire."""

    def __init__(self, port: int) -> None:
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def do_get(self, ticket: bytes) -> tuple[grpc.StatusCode, str, bytes]:
        """Call DoGet and return its status, message and rich status."""
        request = _field(1, ticket)
        call = self._channel.unary_stream("/arrow.flight.protocol.FlightService/DoGet")
        try:
            for _ in call(request):
                pass
        except grpc.RpcError as error:
            details = dict(error.trailing_metadata()).get("grpc-status-details-bin", b"")
            return error.code(), error.details(), details
        return grpc.StatusCode.OK, "", b""

    def do_put(
        self, command: bytes, messages: Sequence[tuple[bytes, bytes]], metadata: bytes
    ) -> tuple[grpc.StatusCode, str]:
        """Call DoPut with the headers and bodies of IPC messages; return its status and message."""
        descriptor = _field(1, b"\x08\x02" + _field(2, command))
        requests = [_field(2, header) + _field(1000, body) for header, body in messages]
        requests = [descriptor + requests[0], *requests[1:], _field(3, metadata)]
        call = self._channel.stream_stream("/arrow.flight.protocol.FlightService/DoPut")
        try:
            for _ in call(iter(requests), timeout=60):
                pass
        except grpc.RpcError as error:
            return error.code(), error.details()
        return grpc.StatusCode.OK, ""


def _field(number: int, value: bytes) -> bytes:
    """Encode a field of a protobuf message."""
    return _length(number << 3 | 2) + _length(len(value)) + value


def _length(number: int) -> bytes:
    varint = b""
    while number > 127:
        varint += bytes([number & 127 | 128])
        number >>= 7
    return varint + bytes([number])


class Peak:
    """The peak memory of a process, sampled while the block runs."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._done = threading.Event()
        self.before = self.now()
        self.peak = self.before
        self._thread = threading.Thread(target=self._look)

    def now(self) -> int:
        return int(self._process.memory_info().rss)

    def _look(self) -> None:
        while not self._done.wait(0.02):
            self.peak = max(self.peak, self.now())

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
