"""Streams that lose their connection."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pyarrow.flight as flight
import pytest
from service_scene import rows

from ffq_spark.errors import (
    Unavailable,
)
from ffq_spark.service.client.channel import Channel


def test_a_stream_that_cannot_go_on_says_so_at_once() -> None:
    class Cut:
        """A client whose connection breaks after the first rows."""

        asked = 0

        def do_get(self, ticket: Any, options: Any) -> Any:
            self.asked += 1
            yield SimpleNamespace(data=rows(0, 5))
            raise flight.FlightUnavailableError("gone")

    client = Cut()
    batches = Channel(client, None, retries=8).stream(b'{"kind": "results", "query": 5}')
    assert next(batches).num_rows == 5
    started = time.monotonic()
    with pytest.raises(Unavailable, match="only streams of read tasks can be resumed"):
        next(batches)
    assert client.asked == 1 and time.monotonic() - started < 2
