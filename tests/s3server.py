"""A real S3 server for tests: SeaweedFS from PyPI, on free loopback ports, killed by its pid."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from types import TracebackType
from typing import Any


def free_ports(count: int) -> list[int]:
    """Find free ports p for which p + 10,000 is also free, because the server opens both."""
    ports: list[int] = []
    while len(ports) < count:
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            if port > 55_000 or port in ports:
                continue
            try:
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port + 10_000))
            except OSError:
                continue
            ports.append(port)
    return ports


_STARTS = 5
_START_SECONDS = 40


class S3Server:
    """An S3 server that is started on entry and killed on exit."""

    bucket = "ffq"
    key = "test-key"
    secret = "test-secret"

    def __init__(self) -> None:
        self._directory = tempfile.mkdtemp(prefix="ffq-s3-")
        self.port = 0
        self._metrics = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def storage_options(self) -> dict[str, Any]:
        return {"key": self.key, "secret": self.secret, "endpoint_url": self.endpoint}

    @property
    def spark_options(self) -> dict[str, str]:
        return {f"storage.{name}": value for name, value in self.storage_options.items()}

    def __enter__(self) -> S3Server:
        # Another process may take a port after it was chosen and before the server opens it.
        for _ in range(_STARTS):
            self._start()
            if self._is_ready():
                return self
            self._stop()
        raise RuntimeError(f"the S3 server did not start in {_STARTS} tries")

    def _start(self) -> None:
        os.makedirs(self._directory, exist_ok=True)
        master, volume, filer, self.port, self._metrics = free_ports(5)
        arguments = {
            "dir": self._directory,
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "master.telemetry": "false",
            "master.port": master,
            "volume.port": volume,
            "filer.port": filer,
            "s3.port": self.port,
            "s3.port.iceberg": 0,
            "admin.ui": "false",
            "webdav": "false",
            "bucket": self.bucket,
            "metricsIp": "127.0.0.1",
            "metricsPort": self._metrics,
        }
        environment = {"AWS_ACCESS_KEY_ID": self.key, "AWS_SECRET_ACCESS_KEY": self.secret}
        with open(os.path.join(self._directory, "server.log"), "wb") as log:
            self._process = subprocess.Popen(
                [_weed(), "mini", *(f"-{name}={value}" for name, value in arguments.items())],
                env={**os.environ, **environment},
                stdout=log,
                stderr=log,
            )

    def request_counts(self) -> dict[str, int]:
        """Return the server's counts of requests to the bucket: GET, LIST, PUT (and parts), …."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics}/metrics") as answer:
            text = answer.read().decode()
        counts: Counter[str] = Counter()
        for labels, count in re.findall(r"^SeaweedFS_s3_request_total{(.*)} (\d+)$", text, re.M):
            of = dict(re.findall(r'(\w+)="(.*?)"', labels))
            if of["bucket"] == self.bucket:
                counts[of["type"]] += int(count)
        return dict(counts)

    def _is_ready(self) -> bool:
        """Wait until the server answers; return False if it exits or takes too long."""
        import s3fs

        assert self._process is not None
        deadline = time.monotonic() + _START_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
            try:
                s3fs.S3FileSystem(**self.storage_options, skip_instance_cache=True).ls(self.bucket)
                with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics}/metrics"):
                    return True
            except Exception:
                continue
        return False

    def __exit__(
        self, kind: type[BaseException] | None, value: object, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)


def _weed() -> str:
    import sys

    beside = os.path.join(os.path.dirname(sys.executable), "weed")
    return beside if os.path.exists(beside) else shutil.which("weed") or "weed"
