"""Serve Prometheus metrics over HTTP, made from the server's activity on each request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ffq_spark.errors import BadOption
from ffq_spark.service.server.activity import Activity

_PREFIX = "ffq_service"


class MetricsServer:
    """An HTTP server for metrics, from construction until `close`."""

    def __init__(self, activity: Activity, host: str, port: int) -> None:
        try:
            import prometheus_client
        except ImportError:
            raise BadOption(
                "metrics need prometheus-client: pip install 'ffq-spark[metrics]'",
                option="metricsPort",
            ) from None
        registry = prometheus_client.CollectorRegistry()
        registry.register(ActivityCollector(activity))
        self._http, self._thread = prometheus_client.start_http_server(port, host, registry)
        self.url = f"http://{host}:{self._http.server_address[1]}/metrics"

    def close(self) -> None:
        """Stop the HTTP server and wait for its thread."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class ActivityCollector:
    """Collect a server's activity for a Prometheus registry."""

    def __init__(self, activity: Activity) -> None:
        self._activity = activity

    def collect(self) -> Iterator[Any]:
        """Yield all metrics with their current values."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        activity, totals = self._activity, self._activity.totals
        calls = CounterMetricFamily(
            f"{_PREFIX}_calls",
            "Calls that ended, by method and outcome.",
            labels=["method", "status"],
        )
        for (method, status), count in list(totals.calls.items()):
            calls.add_metric([method, status], count)
        yield calls
        for name, description, value in (
            ("rows", "Rows that were sent.", totals.rows_sent),
            ("bytes", "Bytes of Arrow data that were sent.", totals.bytes_sent),
            ("rows_taken", "Rows that were uploaded.", totals.rows_received),
            ("bytes_taken", "Bytes of Arrow data that were uploaded.", totals.bytes_received),
        ):
            yield CounterMetricFamily(f"{_PREFIX}_{name}", description, value=value)
        for name, description, value in (
            ("readers", "Streams of rows in progress.", activity.readers.active),
            ("readers_waiting", "Streams that wait for a reader slot.", activity.readers.waiting),
            ("writers", "Uploads in progress.", activity.writers.active),
            ("draining", "Whether the service is shutting down.", int(activity.calls.draining)),
        ):
            yield GaugeMetricFamily(f"{_PREFIX}_{name}", description, value=value)
        if activity.statements is not None:
            statements = GaugeMetricFamily(
                f"{_PREFIX}_queries", "Statements on Spark, by state.", labels=["state"]
            )
            for state, count in activity.statements.counts().items():
                statements.add_metric([state], count)
            yield statements
