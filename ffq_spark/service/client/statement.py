"""A statement on a service's Spark, as its client sees it."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa

from ffq_spark.errors import StatementActive
from ffq_spark.service.client.channel import Channel
from ffq_spark.service.wire.messages import Results

_POLL_SECONDS = 0.2


class RemoteStatement:
    """A submitted statement; `query` is its number."""

    def __init__(self, channel: Channel, query: int) -> None:
        self._channel = channel
        self.query = query

    def status(self) -> dict[str, Any]:
        """Return the state (QUEUED, RUNNING, SUCCEEDED, FAILED, CANCELED), message and times."""
        answer: dict[str, Any] = self._channel.action("GetQueryStatus", {"query": self.query})
        return answer

    def cancel(self, reason: str) -> dict[str, Any]:
        """Cancel the statement and return its status."""
        body = {"query": self.query, "reason": reason}
        answer: dict[str, Any] = self._channel.action("CancelQuery", body)
        return answer

    def wait(self, seconds: float = float("inf")) -> dict[str, Any]:
        """Wait until the statement has ended, and return its status.

        Raises StatementActive if it has not ended after a number of seconds. It goes on.
        """
        deadline = time.monotonic() + seconds
        while (status := self.status())["state"] in ("QUEUED", "RUNNING"):
            if time.monotonic() > deadline:
                message = f"statement {self.query} is still {status['state']} after {seconds} s"
                raise StatementActive(message, remedy="It goes on: call `wait()` again")
            time.sleep(_POLL_SECONDS)
        return status

    def result(self) -> pa.RecordBatchReader:
        """Wait for the statement and stream its rows; raise the error with which it ended."""
        self.wait()
        return self._channel.rows(self._channel.info(Results(self.query)))
