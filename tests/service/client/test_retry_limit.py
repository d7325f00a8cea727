"""Lost connections are retried with growing waits; errors of the service are not."""

from __future__ import annotations

import pytest
from pyarrow import flight

from ffq_spark.errors import Fenced, Unavailable
from ffq_spark.service.client import retries as retries_module
from ffq_spark.service.client.retries import Retries


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waited: list[float] = []
    monkeypatch.setattr(retries_module.time, "sleep", waited.append)
    return waited


def test_waits_double_up_to_a_limit_and_begin_anew_after_progress(waits: list[float]) -> None:
    retries = Retries(9)
    for _ in range(8):
        retries.wait_after(OSError("reset"))
    assert waits == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    retries.reset()
    retries.wait_after(flight.FlightUnavailableError("[FFQ_UNAVAILABLE] draining"))
    assert waits[-1] == 0.05


def test_the_last_failure_is_raised_without_what_grpc_adds(waits: list[float]) -> None:
    retries = Retries(1)
    retries.wait_after(OSError("reset"))
    with pytest.raises(Unavailable, match="reset") as caught:
        retries.wait_after(OSError("reset. gRPC client debug context: x\nmore"))
    assert caught.value.message == "reset" and len(waits) == 1


def test_an_error_of_the_service_is_raised_at_once(waits: list[float]) -> None:
    with pytest.raises(Fenced):
        Retries(9).wait_after(flight.FlightInternalError("[FFQ_FENCED] late"))
    assert not waits
