"""Health and Prometheus metrics."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest

import ffq_spark as ffq
from ffq_spark.errors import (
    FfqError,
)


def test_health_and_metrics_tell_what_is_done(lake: Path) -> None:
    with ffq.serve({"x": str(lake / "other")}, port=0, metrics_port=0) as service:
        connection = ffq.connect(service.url)
        assert connection.health()["status"] == "SERVING"
        connection.exchange("x").read().read_all()
        with pytest.raises(FfqError):
            connection.exchange("none").read()
        assert service.metrics_url is not None
        assert service.metrics_url.startswith("http://127.0.0.1:")
        text = urllib.request.urlopen(service.metrics_url, timeout=10).read().decode()
        assert "ffq_service_rows_total 50.0" in text
        series = 'ffq_service_calls_total{method="get_flight_info",status="FFQ_EXCHANGE_NOT_FOUND"}'
        assert f"{series} 1.0" in text
        assert 'ffq_service_calls_total{method="stream",status="OK"} 1.0' in text
        assert "ffq_service_readers 0.0" in text
