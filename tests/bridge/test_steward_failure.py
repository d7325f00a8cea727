"""A steward that cannot start: writes go on, and promise no lease that nobody would renew."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from bridge_processes import wait_for
from conftest import start_spark
from spark_rows import failure

from ffq_spark import Exchange
from ffq_spark.format import paths
from ffq_spark.format.records import QueryRecord
from ffq_spark.store import Store

pytestmark = pytest.mark.spark


def test_a_bad_duration_of_leases_is_refused_by_name(new_root: Callable[[], str]) -> None:
    spark = start_spark("local[1]", **{"spark.ffq.lease.seconds": "30s"})
    try:
        message = failure(lambda: lease_of_a_write(spark, new_root()))
        assert "[FFQ_BAD_OPTION] spark.ffq.lease.seconds" in message and "'30s'" in message
        assert spark.range(9).count() == 9
    finally:
        spark.stop()


@pytest.fixture(params=["missing", "failing"])
def spark(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Start a session whose interpreter for the steward is missing, or ends at once."""
    python = tmp_path / "python"
    if request.param == "failing":
        python.write_text("#!/bin/sh\nexit 3\n")
        os.chmod(python, 0o755)
    session = start_spark("local[1]", **{"spark.ffq.python": str(python)})
    yield session
    session.stop()


def lease_of_a_write(spark: Any, root: str) -> int:
    """Write an exchange, and return the seconds of the lease that the write promised."""
    spark.range(3).write.format("ffqshuffle").mode("append").save(root)
    assert Exchange(root).info().rows == 3
    (status,) = Exchange(root).status()
    path = paths.query(status.query)
    return QueryRecord.decode(Store(root).read(path), path).lease_seconds


def test_writes_after_the_failure_promise_no_lease(spark: Any, new_root: Callable[[], str]) -> None:
    lease_of_a_write(spark, new_root())
    root = ""

    def promises_none() -> bool:
        nonlocal root
        root = new_root()
        return lease_of_a_write(spark, root) == 0

    wait_for(promises_none, 60, "a write without a lease")
    assert Store(root).list(paths.LEASES) == []
