"""A query on a service's Spark."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa

from ffq_spark.errors import TimedOut
from ffq_spark.service.line import Line
from ffq_spark.service.wire import Results

_POLL_SECONDS = 0.2


class RemoteQuery:
    """A query on the service's Spark."""

    def __init__(self, line: Line, query: int) -> None:
        self._line = line
        self.query = query

    def status(self) -> dict[str, Any]:
        """Its state (QUEUED, RUNNING, SUCCEEDED, FAILED, CANCELED), message and times."""
        found: dict[str, Any] = self._line.action("GetQueryStatus", {"query": self.query})
        return found

    def cancel(self, reason: str) -> dict[str, Any]:
        """End it."""
        body = {"query": self.query, "reason": reason}
        found: dict[str, Any] = self._line.action("CancelQuery", body)
        return found

    def wait(self, seconds: float = float("inf")) -> dict[str, Any]:
        """Its status once it has ended."""
        deadline = time.monotonic() + seconds
        while (found := self.status())["state"] in ("QUEUED", "RUNNING"):
            if time.monotonic() > deadline:
                raise TimedOut(f"query {self.query} is {found['state']} after {seconds} s")
            time.sleep(_POLL_SECONDS)
        return found

    def result(self) -> pa.RecordBatchReader:
        """Its rows, as a stream, once it has succeeded; else the error that it ended with."""
        self.wait()
        return self._line.rows(self._line.info(Results(self.query)))
