"""A service ends at once on a signal, whether callers read, write, wait or stall."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from service_scene import rows, serving, until, with_one_reader, write

import ffq_spark as ffq
from ffq_spark.errors import FfqError, Unavailable
from ffq_spark.service.client.connection import Connection
from ffq_spark.service.server.service import Service

# More than gRPC takes for a client that reads nothing.
COUNT, WIDTH = 300_000, 100


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = str(tmp_path_factory.mktemp("large") / "x")
    write(root, rows(0, COUNT, WIDTH), partitions=1)
    return root


class Load:
    """Active readers and producers, one stalled reader and producer, and one waiting reader."""

    READERS = 3
    FLAGS = ("--server-credits", "3m", "--max-readers", str(READERS), "--writable")

    def __init__(self, url: str) -> None:
        self._url = url
        self._over = threading.Event()
        self.unexpected: list[BaseException] = []
        work = [self._stall, *[self._read] * self.READERS, self._produce, self._stall_upload]
        self._threads = [threading.Thread(target=self._run, args=(each,)) for each in work]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        with self._connect() as observer:
            until(lambda: self._is_under_way(observer.health()))
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _is_under_way(self, health: dict[str, int]) -> bool:
        busy = (health["readers"], health["waiting"], health["writers"])
        return busy == (self.READERS, 1, 2) or bool(self.unexpected)

    def _connect(self) -> Connection:
        return ffq.connect(self._url, retries=0)

    def _run(self, work: Callable[[Connection], None]) -> None:
        try:
            with self._connect() as connection:
                work(connection)
        except Unavailable:
            pass
        except FfqError as error:
            self.unexpected.append(error)

    def _stall(self, connection: Connection) -> None:
        reader = connection.exchange("x").read()
        reader.read_next_batch()
        self._over.wait()
        del reader

    def _read(self, connection: Connection) -> None:
        while not self._over.is_set():
            for _ in connection.exchange("x").read():
                pass

    def _produce(self, connection: Connection) -> None:
        self._upload(connection, lambda: self._over.wait(0.01))

    def _stall_upload(self, connection: Connection) -> None:
        self._upload(connection, self._over.wait)

    def _upload(self, connection: Connection, pause: Callable[[], bool]) -> None:
        batch = rows(0, 10)
        exchange = connection.exchange("w")
        upload = exchange.begin(batch.schema, keys="id", partitions=2)

        def batches() -> Iterator[pa.RecordBatch]:
            # Larger than a message, so that each is sent by itself.
            yield rows(0, 50_000, WIDTH)
            while not pause():
                yield rows(0, 50_000, WIDTH)

        upload.put(0, batches())


def seconds_to_end(root: str, place: Path, drain: int) -> float:
    """Return the seconds from SIGTERM to the end of a server under load."""
    flags = [f"x={root}", f"w={place}", "--drain-seconds", str(drain), *Load.FLAGS]
    with serving(*flags) as server, Load(server.url) as load:
        started = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(120) == 1
        taken = time.monotonic() - started
    assert not load.unexpected
    return taken


def end_often(root: str, place: Path, times: int) -> None:
    beyond = []
    for number in range(times):
        drain = number % 2
        beyond.append(seconds_to_end(root, place / str(number), drain) - drain)
    beyond.sort()
    middle = beyond[len(beyond) // 2]
    print(f"{times} ends: median {middle:.2f} s, longest {beyond[-1]:.2f} s beyond the drain")
    assert beyond[-1] < 2


def test_sigterm_ends_a_loaded_server_within_two_seconds_of_its_drain(
    large: str, tmp_path: Path
) -> None:
    end_often(large, tmp_path, 8)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_sigterm_ends_a_loaded_server_200_times(large: str, tmp_path: Path) -> None:
    end_often(large, tmp_path, 200)


# --- signals ----------------------------------------------------------------------------------


def test_a_second_signal_ends_the_drain_at_once(large: str) -> None:
    flags = ["--drain-seconds", "600", "--server-credits", "1m", "--max-readers", "1"]
    with serving(f"x={large}", *flags) as server:
        connection = ffq.connect(server.url, retries=0)
        reader = connection.exchange("x").read()
        reader.read_next_batch()
        server.process.send_signal(signal.SIGTERM)
        with pytest.raises(Unavailable, match="shutting down"):
            while True:
                connection.health()
        started = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 1
        assert time.monotonic() - started < 2


# --- in a program -----------------------------------------------------------------------------


def until_stalled(service: Service) -> None:
    """Wait until a reader is active that accepts no more bytes."""
    totals, sent = service.server.activity.totals, -1
    while not sent or sent != totals.bytes_sent:
        sent = totals.bytes_sent
        time.sleep(0.5)


PROGRAM = """
import sys
import ffq_spark as ffq
from test_shutdown import until_stalled
service = ffq.serve({"x": sys.argv[1]}, port=0, server_credits=1 << 20, max_readers=1)
print(service.url, flush=True)
sys.stdin.readline()
until_stalled(service)
print(service.close(drain=0), service.server.activity.readers.active, flush=True)
"""


def test_a_program_ends_although_a_reader_stalls(large: str) -> None:
    command = [sys.executable, "-c", PROGRAM, large]
    path = os.pathsep.join([*sys.path, os.path.dirname(__file__)])
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(
        command, **pipes, text=True, env={**os.environ, "PYTHONPATH": path}
    ) as process:
        try:
            assert process.stdin is not None and process.stdout is not None
            connection = ffq.connect(process.stdout.readline().strip(), retries=0)
            reader = connection.exchange("x").read()
            reader.read_next_batch()
            print("close", file=process.stdin, flush=True)
            # The call was cut off, and nothing of it is left.
            assert process.stdout.readline() == "False 0\n"
            assert process.wait(30) == 0
            with pytest.raises(Unavailable):
                reader.read_all()
        finally:
            process.kill()


def test_a_reader_in_line_is_told_at_once_that_the_service_ends(large: str) -> None:
    service, _connection, _reader = with_one_reader(large, max_wait=600)
    refusals: list[BaseException] = []

    def wait_in_line() -> None:
        try:
            ffq.connect(service.url, retries=0).exchange("x").read().read_all()
        except FfqError as error:
            refusals.append(error)

    until_stalled(service)
    waiting = threading.Thread(target=wait_in_line)
    waiting.start()
    until(lambda: service.server.activity.readers.waiting == 1)
    assert service.close(drain=0) is False
    waiting.join()
    assert isinstance(refusals[0], Unavailable) and "shutting down" in str(refusals[0])
    until(lambda: not service.server.activity.calls.active)
