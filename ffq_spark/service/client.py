"""`ffq.connect`: exchanges and queries of a service, with neither Spark nor its storage at hand."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from ffq_spark.errors import BadOption
from ffq_spark.service.line import Line
from ffq_spark.service.remote_exchange import RemoteExchange
from ffq_spark.service.remote_query import RemoteQuery

_RETRIES = 8


def connect(
    url: str,
    token: str | None = None,
    *,
    tls_ca: str | None = None,
    tls_certificate: str | None = None,
    tls_key: str | None = None,
    retries: int = _RETRIES,
) -> Connection:
    """Connect to a service: `grpc://host:port`, or with TLS `grpc+tls://host:port`.

    `tls_ca`, `tls_certificate` and `tls_key` are PEM files. Reads that are cut off, also by a
    server that is started anew, go on where they were, up to `retries` times without a new row.

    >>> from ffq_spark.service.service import serve
    >>> from ffq_spark.examples import tiny_exchange
    >>> with serve({"tiny": tiny_exchange().root}, port=0) as service:
    ...     connect(service.url).exchange("tiny").lookup(4).to_pylist()
    [{'id': 4, 'name': 'row 4'}]
    """
    if "@" in url:
        raise BadOption("the URL holds a login: give a token instead", option="url")
    given = {
        "tls_root_certs": _pem(tls_ca, "tls_ca"),
        "cert_chain": _pem(tls_certificate, "tls_certificate"),
        "private_key": _pem(tls_key, "tls_key"),
    }
    try:
        client = flight.FlightClient(url, **{k: v for k, v in given.items() if v is not None})
    except (pa.ArrowException, ValueError) as error:
        raise BadOption(f"{url}: {error}", option="url") from None
    return Connection(client, token, retries)


def _pem(path: str | None, option: str) -> bytes | None:
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise BadOption(f"{path}: {type(error).__name__}", option=option) from None


class Connection(Line):
    """A service, as its callers see it. Threads may share one."""

    def __enter__(self) -> Connection:
        return self

    def exchanges(self, prefix: str = "") -> list[str]:
        """The names of the exchanges that this caller may read."""

        def listed() -> list[str]:
            found = self.client.list_flights(prefix.encode(), self.options)
            return ["/".join(n.decode() for n in info.descriptor.path) for info in found]

        return self.call(listed)

    def exchange(self, name: str) -> RemoteExchange:
        """An exchange of the service."""
        return RemoteExchange(self, name)

    def submit(self, sql: str | None = None, *, view: str | None = None) -> RemoteQuery:
        """Give the service's Spark a query, as SQL or by the name of a view."""
        body = {"sql": sql, "view": view}
        told = {name: value for name, value in body.items() if value is not None}
        return RemoteQuery(self, self.action("SubmitQuery", told, retry=False)["query"])

    def query(self, number: int) -> RemoteQuery:
        """A query that was submitted before."""
        return RemoteQuery(self, number)

    def health(self) -> dict[str, Any]:
        """Whether the service works, and how busy it is."""
        found: dict[str, Any] = self.action("Health", {})
        return found
