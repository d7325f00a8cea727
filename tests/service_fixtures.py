"""Fixtures of the service's tests: served exchanges, and connections to them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# The fixtures import the service and its helpers themselves: all tests load this module.
import ffq_spark as ffq


@pytest.fixture
def two_steps(root: str) -> ffq.Exchange:
    from service_scene import MANY, rows, write

    write(root, rows(0, MANY))
    return write(root, rows(MANY, 100))


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Make a directory with the exchanges a and b, and another exchange beside it."""
    from service_scene import rows, write

    for name in ("a", "b"):
        write(str(tmp_path / "lake" / name), rows(0, 100))
    write(str(tmp_path / "other"), rows(0, 50))
    return tmp_path


@pytest.fixture
def connect() -> Iterator[Any]:
    """Return a function that serves roots and connects to them. Both are closed after the test."""
    opened: list[Any] = []

    def start(roots: Any, **options: Any) -> Any:
        service = ffq.serve(roots, **{"port": 0, "drain_seconds": 0, **options})
        connection = ffq.connect(service.url, retries=0)
        opened.extend([connection, service])
        connection.port = service.server.port  # type: ignore[attr-defined]
        return connection

    yield start
    for closeable in opened:
        closeable.close()


@pytest.fixture
def service(root: str) -> Iterator[Any]:
    """Serve a root as the writable exchange `made`, and connect to the service."""
    options = {"port": 0, "writable": True, "drain_seconds": 0, "lease_seconds": 60}
    with ffq.serve({"made": root}, **options) as served, ffq.connect(served.url) as connection:
        yield connection
