"""Starting and stopping a service."""

from __future__ import annotations

import atexit
import ipaddress
import logging
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from ffq_spark.errors import BadOption
from ffq_spark.options import ServeOptions
from ffq_spark.service.access import Tokens
from ffq_spark.service.connections import cut_connections
from ffq_spark.service.queries import RESULTS, Queries
from ffq_spark.service.roots import Roots, named_roots
from ffq_spark.service.server import ExchangeServer
from ffq_spark.service.trusted_files import read_trusted

logger = logging.getLogger("ffq_spark.service")

# How long calls that are asked to end may take to do so, before and after their connections are
# cut: together less than what a supervisor adds to the drain before it kills the process.
_END_SECONDS = 0.5
_CUT_SECONDS = 1.0


def serve(
    roots: str | Sequence[str] | Mapping[str, str],
    *,
    spark: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Service:
    """Serve exchanges over Arrow Flight, from now until `close`; only this machine is listened to.

    `roots` are exchanges or directories of exchanges, by name or called by the last part of their
    path. Given a Spark session, callers may run queries on it.

    >>> import ffq_spark as ffq
    >>> from ffq_spark.examples import tiny_exchange
    >>> with serve({"tiny": tiny_exchange().root}, port=0) as service:
    ...     ffq.connect(service.url).exchange("tiny").read().read_all().num_rows
    6
    """
    chosen = ServeOptions.of_python(options)
    if isinstance(roots, str):
        roots = [roots]
    named = dict(roots) if isinstance(roots, Mapping) else named_roots(roots)
    if RESULTS in named:
        raise BadOption(f"{RESULTS!r} is the name of queries' results", option="roots")
    return Service(named, chosen, spark, storage_options)


class Service:
    """A running service. Close it, or use it in a `with`."""

    def __init__(
        self,
        roots: Mapping[str, str],
        options: ServeOptions,
        spark: Any = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        tokens = Tokens.load(options.tokens) if options.tokens else None
        tls = _tls(options)
        _refuse_open_doors(options, tokens)
        self._options = options
        self._results = ResultsPlace(options.results_root) if spark is not None else None
        self._queries: Queries | None = None
        self._metrics: Any = None
        try:
            self._start(roots, tokens, tls, spark, storage_options)
        except BaseException:
            self._stop_queries()
            raise

    def _start(
        self,
        roots: Mapping[str, str],
        tokens: Tokens | None,
        tls: Mapping[str, Any],
        spark: Any,
        storage_options: Mapping[str, Any] | None,
    ) -> None:
        options, hidden = self._options, {}
        if self._results is not None:
            self._queries = Queries(spark, self._results.root, options, storage_options)
            hidden = {RESULTS: self._results.root}
        scheme = "grpc+tls" if tls else "grpc+tcp"
        host = f"[{options.host}]" if ":" in options.host else options.host
        self.server = ExchangeServer(
            f"{scheme}://{host}:{options.port}",
            Roots(roots, storage_options, hidden=hidden),
            options,
            tokens=tokens,
            queries=self._queries,
            **tls,
        )
        self.url = f"{scheme}://{host}:{self.server.port}"
        if options.metrics_port is not None:
            from ffq_spark.service.metrics import Metrics

            try:
                self._metrics = Metrics(self.server, options.metrics_host, options.metrics_port)
            except BaseException:
                self.server.shutdown()
                raise

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def metrics_url(self) -> str | None:
        """Where metrics are, if they are served."""
        return self._metrics.url if self._metrics else None

    def close(self, drain: float | None = None) -> bool:
        """Refuse new calls, let calls finish for `drain` seconds, and stop the server.

        Return whether all calls finished; others are cut off. `drain` is `drainSeconds` by default.
        """
        seconds = self._options.drain_seconds if drain is None else drain
        finished = self.server.calls.drain(seconds)
        stopper = threading.Thread(target=self.server.stop, daemon=True)
        stopper.start()
        try:
            self._stop_queries()
        finally:
            stopper.join(_END_SECONDS)
            if stopper.is_alive():
                # gRPC waits for calls whose caller neither reads on nor hangs up.
                cut_connections(self.server.port)
                stopper.join(_CUT_SECONDS)
            if self._metrics is not None:
                self._metrics.close()
        if not finished:
            logger.warning("calls were cut off after %s s", seconds)
        return finished and not stopper.is_alive()

    def _stop_queries(self) -> None:
        if self._queries is not None:
            self._queries.close()
        if self._results is not None:
            self._results.remove()


class ResultsPlace:
    """Where results lie: a given root, or a temporary directory that goes with the service.

    >>> import os
    >>> place = ResultsPlace()
    >>> place.remove()
    >>> os.path.exists(place.root)
    False
    """

    def __init__(self, root: str = "") -> None:
        self._temporary = not root
        self.root = root or tempfile.mkdtemp(prefix="ffq-results-")
        if self._temporary:
            # At the end of the process once more: a task of Spark may have come late.
            atexit.register(self.remove)

    def remove(self) -> None:
        """Remove what is temporary."""
        if self._temporary:
            shutil.rmtree(self.root, ignore_errors=True)


def _tls(options: ServeOptions) -> dict[str, Any]:
    if bool(options.tls_certificate) != bool(options.tls_key):
        raise BadOption("a certificate and its key come together", option="tlsKey")
    if not options.tls_certificate:
        if options.tls_client_ca:
            raise BadOption("mutual TLS needs a certificate", option="tlsCertificate")
        return {}
    pair = (
        read_trusted(options.tls_certificate, "tlsCertificate"),
        read_trusted(options.tls_key, "tlsKey"),
    )
    found: dict[str, Any] = {"tls_certificates": [pair]}
    if options.tls_client_ca:
        found["verify_client"] = True
        found["root_certificates"] = read_trusted(options.tls_client_ca, "tlsClientCa")
    return found


def _refuse_open_doors(options: ServeOptions, tokens: Tokens | None) -> None:
    if _is_loopback(options.host) or options.insecure:
        return
    if tokens is None:
        raise BadOption(f"{options.host} is reached from outside: give tokens", option="tokens")
    if not options.tls_certificate:
        told = f"{options.host} is reached from outside: tokens need TLS"
        raise BadOption(told, option="tlsCertificate")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
