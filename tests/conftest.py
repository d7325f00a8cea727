"""Fixtures for all tests: real Spark sessions and a real S3 server, both on loopback."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from layouts import LAYOUT

from ffq_spark.store.location import open_backend

# No deadline: the duration of an example depends on the load of the machine.
settings.register_profile("ffq", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ffq")

sys.path.insert(0, str(Path(__file__).parent))

# A second conftest.py in a directory would shadow this one: tests import it as `conftest`.
pytest_plugins = ("log_fixtures", "service_fixtures")

os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
# A short-lived JVM would spend half of its time on optimizing code that runs once.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# Directories with long tests run first; started last, a long test would leave other workers idle.
_FIRST = ("faults", "bridge", "queries", "spark", "service")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.parent.name not in _FIRST)
    for item in items:
        if LAYOUT != "parts" and item.get_closest_marker("part_files"):
            item.add_marker(pytest.mark.skip("looks at files that layout=packed does not have"))


@dataclass(frozen=True)
class Place:
    """A root and the storage options that open it."""

    root: str
    storage_options: dict[str, Any] = field(default_factory=dict)

    def client(self) -> Any:
        """Return the client of the root's storage, which stores of this process share."""
        return open_backend(self.root, self.storage_options).client


def start_spark(master: str = "local[2]", **conf: str) -> Any:
    """Start a tuned session; `_` in a keyword stands for `.` in the setting's name."""
    from pyspark.sql import SparkSession

    import ffq_spark as ffq

    builder = SparkSession.builder.master(master)
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
    }
    for name, value in {**settings, **{k.replace("_", "."): v for k, v in conf.items()}}.items():
        builder = builder.config(name, value)
    session = ffq.configure(builder).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    session = start_spark()
    yield session
    session.stop()


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "exchange")


@pytest.fixture(scope="session")
def s3() -> Iterator[Any]:
    from s3server import S3Server

    with S3Server() as server:
        yield server


@pytest.fixture(scope="session")
def s3_through_proxy(s3: Any) -> Iterator[Any]:
    from s3proxy import S3Proxy

    with S3Proxy(s3.port) as proxy:
        yield proxy


@pytest.fixture
def proxy(s3_through_proxy: Any) -> Any:
    """Return the proxy of the S3 server, with its request counts reset for this test."""
    s3_through_proxy.forget()
    return s3_through_proxy


@pytest.fixture
def proxied(s3: Any, proxy: Any) -> Place:
    """Return a new root that is reached through the proxy."""
    options = {**s3.storage_options, "endpoint_url": proxy.endpoint}
    return Place(f"s3://{s3.bucket}/{uuid.uuid4().hex}", options)


@pytest.fixture(params=["local", "memory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Return a new root; the test runs once on each kind of storage."""
    name = uuid.uuid4().hex
    if request.param == "local":
        return Place(str(tmp_path / name))
    if request.param == "memory":
        return Place(f"memory://{name}")
    server = request.getfixturevalue("s3")
    return Place(f"s3://{server.bucket}/{name}", server.storage_options)


@pytest.fixture
def new_root(tmp_path: Path) -> Callable[[], str]:
    """Return a function that makes new roots, for property tests."""
    return lambda: str(tmp_path / uuid.uuid4().hex)
