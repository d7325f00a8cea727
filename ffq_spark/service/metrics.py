"""Prometheus metrics over HTTP, made from the server's own counters when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ffq_spark.errors import BadOption

if TYPE_CHECKING:
    from ffq_spark.service.server import ExchangeServer

_PREFIX = "ffq_service"


class Metrics:
    """An HTTP server for metrics; it runs until it is closed."""

    def __init__(self, server: ExchangeServer, host: str, port: int) -> None:
        try:
            import prometheus_client
        except ImportError:
            told = "metrics need prometheus-client: pip install 'ffq-spark[metrics]'"
            raise BadOption(told, option="metricsPort") from None
        registry = prometheus_client.CollectorRegistry()
        registry.register(Collector(server))
        self._http, self._thread = prometheus_client.start_http_server(port, host, registry)
        self.url = f"http://{host}:{self._http.server_address[1]}/metrics"

    def close(self) -> None:
        """Stop."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class Collector:
    """What Prometheus asks for."""

    def __init__(self, server: ExchangeServer) -> None:
        self._server = server

    def collect(self) -> Iterator[Any]:
        """All metrics, as they are now."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        server, counters = self._server, self._server.counters
        calls = CounterMetricFamily(
            f"{_PREFIX}_calls",
            "Calls that ended, by method and outcome.",
            labels=["method", "status"],
        )
        for (method, status), count in list(counters.calls.items()):
            calls.add_metric([method, status], count)
        yield calls
        for name, told in (
            ("rows", "Rows that were sent."),
            ("bytes", "Bytes of Arrow data that were sent."),
            ("rows_taken", "Rows that were uploaded."),
            ("bytes_taken", "Bytes of Arrow data that were uploaded."),
        ):
            yield CounterMetricFamily(f"{_PREFIX}_{name}", told, value=getattr(counters, name))
        for name, told, value in (
            ("readers", "Streams of rows under way.", server.readers.active),
            ("readers_waiting", "Streams that wait in line.", server.readers.waiting),
            ("writers", "Uploads under way.", server.writers.active),
            ("draining", "Whether the service is shutting down.", int(server.calls.draining)),
        ):
            yield GaugeMetricFamily(f"{_PREFIX}_{name}", told, value=value)
        if server.queries is not None:
            queries = GaugeMetricFamily(f"{_PREFIX}_queries", "Queries on Spark.", labels=["state"])
            for state, count in server.queries.counts().items():
                queries.add_metric([state], count)
            yield queries
