"""A real standalone Spark cluster on two loopback hosts, for tests of speculation.

Spark never puts a speculative twin on the host of the first attempt. All workers of `local-cluster`
share one host, so it cannot speculate.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

import pyspark
from s3server import free_ports

HOSTS = ("127.0.0.1", "127.0.0.2")


class StandaloneCluster:
    """A master, and one worker with one core on each host; started on entry, killed on exit."""

    def __init__(self) -> None:
        self._home = Path(pyspark.__file__).parent
        self._folder = Path(tempfile.mkdtemp(prefix="ffq-cluster-"))
        (self._port,) = free_ports(1)
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        return f"spark://{HOSTS[0]}:{self._port}"

    def __enter__(self) -> StandaloneCluster:
        port = ["--port", str(self._port)]
        self._start("org.apache.spark.deploy.master.Master", HOSTS[0], *port)
        self._wait("I have been elected leader", 1)
        for host in HOSTS:
            size = ["--cores", "1", "--memory", "1g"]
            self._start("org.apache.spark.deploy.worker.Worker", host, *size, self.master)
        self._wait("Registering worker", len(HOSTS))
        return self

    def _start(self, kind: str, host: str, *arguments: str) -> None:
        name = f"{kind.rsplit('.', 1)[-1]}-{host}"
        command = ["java", "-Xmx256m", "-cp", f"{self._home}/jars/*", kind, "--host", host]
        environment = {
            **os.environ,
            "SPARK_HOME": str(self._home),
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_LOCAL_IP": host,
            "SPARK_WORKER_DIR": str(self._folder / name),
        }
        with open(self._folder / f"{name}.log", "wb") as log:
            process = subprocess.Popen(
                [*command, "--webui-port", "0", *arguments],
                env=environment,
                stdout=log,
                stderr=log,
            )
        self._processes.append(process)

    def _wait(self, text: str, times: int) -> None:
        log = self._folder / f"Master-{HOSTS[0]}.log"
        deadline = time.monotonic() + 60
        while log.read_text(errors="replace").count(text) < times:
            assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
            time.sleep(0.1)

    def __exit__(
        self, kind: type[BaseException] | None, value: object, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
