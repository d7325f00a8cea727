"""Start and stop a service."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from ffq_spark.errors import BadOption
from ffq_spark.options import ServeOptions
from ffq_spark.service.auth.tokens import Tokens
from ffq_spark.service.server.flight_server import ExchangeServer
from ffq_spark.service.server.metrics import MetricsServer
from ffq_spark.service.server.roots import Roots, named_roots
from ffq_spark.service.server.tcp_connections import cut_connections
from ffq_spark.service.server.tls import refuse_unprotected, tls_arguments
from ffq_spark.service.statements.results_root import RESULTS, ResultsRoot
from ffq_spark.service.statements.statements import Statements

logger = logging.getLogger("ffq_spark.service")

# Seconds that calls get to end before and after their connections are cut. The sum is less than
# supervisors usually wait beyond the drain before they kill the process.
_END_SECONDS = 0.5
_CUT_SECONDS = 1.0


def serve(
    roots: str | Sequence[str] | Mapping[str, str],
    *,
    spark: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Service:
    """Start serving exchanges over Arrow Flight, by default on the loopback address only.

    `roots` are exchanges or directories of exchanges: a mapping by name, or a list that is named by
    the last part of each path. With a Spark session callers can run statements on it. `options`
    are those of the table *Serve* in docs/options.md, in snake case.

    >>> import ffq_spark as ffq
    >>> from ffq_spark.examples import tiny_exchange
    >>> with serve({"tiny": tiny_exchange().root}, port=0) as service:
    ...     ffq.connect(service.url).exchange("tiny").read().read_all().num_rows
    6
    """
    serve_options = ServeOptions.of_python(options)
    if isinstance(roots, str):
        roots = [roots]
    by_name = dict(roots) if isinstance(roots, Mapping) else named_roots(roots)
    if RESULTS in by_name:
        raise BadOption(
            f"the name {RESULTS!r} is reserved for results: give another NAME=ROOT", option="roots"
        )
    return Service(by_name, serve_options, spark, storage_options)


class Service:
    """A running service; close it, or use it as a context manager."""

    def __init__(
        self,
        roots: Mapping[str, str],
        options: ServeOptions,
        spark: Any = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._options = options
        self._tokens = Tokens.load(options.tokens) if options.tokens else None
        self._tls = tls_arguments(options)
        refuse_unprotected(options)
        self._results = ResultsRoot(options.results_root) if spark is not None else None
        self._statements: Statements | None = None
        self._metrics: MetricsServer | None = None
        try:
            self._start(roots, spark, dict(storage_options or {}))
        except BaseException:
            self._stop_statements()
            raise

    def _start(self, roots: Mapping[str, str], spark: Any, storage: Mapping[str, Any]) -> None:
        options, hidden = self._options, {}
        if self._results is not None:
            self._statements = Statements(spark, self._results.root, options, storage)
            hidden = {RESULTS: self._results.root}
        scheme = "grpc+tls" if self._tls else "grpc+tcp"
        host = f"[{options.host}]" if ":" in options.host else options.host
        self.server = ExchangeServer(
            f"{scheme}://{host}:{options.port}",
            Roots(roots, storage, hidden=hidden),
            options,
            tokens=self._tokens,
            statements=self._statements,
            **self._tls,
        )
        self.url = f"{scheme}://{host}:{self.server.port}"
        if options.metrics_port is not None:
            try:
                self._metrics = MetricsServer(
                    self.server.activity, options.metrics_host, options.metrics_port
                )
            except BaseException:
                self.server.shutdown()
                raise

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def metrics_url(self) -> str | None:
        """The URL of the metrics, or None if they are off."""
        return self._metrics.url if self._metrics else None

    def close(self, drain: float | None = None) -> bool:
        """Refuse new calls, wait up to `drain` seconds for calls in progress, and stop the server.

        Return whether all calls finished; the others are cut off. `drain` defaults to the option
        `drainSeconds`.
        """
        seconds = self._options.drain_seconds if drain is None else drain
        finished = self.server.activity.calls.drain(seconds)
        stopper = threading.Thread(target=self.server.stop, daemon=True)
        stopper.start()
        try:
            self._stop_statements()
        finally:
            stopper.join(_END_SECONDS)
            if stopper.is_alive():
                # gRPC waits for callers that neither continue to read nor disconnect.
                cut_connections(self.server.port)
                stopper.join(_CUT_SECONDS)
            if self._metrics is not None:
                self._metrics.close()
        if not finished:
            logger.warning("calls in progress were cut off after %s s of draining", seconds)
        return finished and not stopper.is_alive()

    def _stop_statements(self) -> None:
        if self._statements is not None:
            self._statements.close()
        if self._results is not None:
            self._results.remove()
