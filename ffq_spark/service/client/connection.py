"""`ffq.connect`: use a service's exchanges and statements without Spark or access to storage."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from ffq_spark.errors import BadOption
from ffq_spark.service.client.channel import Channel
from ffq_spark.service.client.exchange import RemoteExchange
from ffq_spark.service.client.retries import Retries
from ffq_spark.service.client.statement import RemoteStatement
from ffq_spark.store.credentials import address_holds_credentials

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
    """Connect to a service at `grpc://host:port`, or with TLS at `grpc+tls://host:port`.

    `tls_ca`, `tls_certificate` and `tls_key` are PEM files. Reads that lose their connection, or
    whose server restarts, resume with the next row, after up to `retries` failures in a row.

    >>> from ffq_spark import serve
    >>> from ffq_spark.examples import tiny_exchange
    >>> with serve({"tiny": tiny_exchange().root}, port=0) as service:
    ...     connect(service.url).exchange("tiny").lookup(4).to_pylist()
    [{'id': 4, 'name': 'row 4'}]
    """
    if address_holds_credentials(url):
        # The message does not quote the URL: it contains a secret.
        raise BadOption("the URL contains a login or a secret: give a token instead", option="url")
    files = {
        "tls_root_certs": _read_pem(tls_ca, "tls_ca"),
        "cert_chain": _read_pem(tls_certificate, "tls_certificate"),
        "private_key": _read_pem(tls_key, "tls_key"),
    }
    try:
        client = flight.FlightClient(url, **{k: v for k, v in files.items() if v is not None})
    except (pa.ArrowException, ValueError) as error:
        raise BadOption(f"{url}: {error}", option="url") from None
    return Connection(client, token, retries)


def _read_pem(path: str | None, option: str) -> bytes | None:
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise BadOption(
            f"cannot read {path}: {error.strerror or type(error).__name__}", option=option
        ) from None


class Connection(Channel):
    """A connection to a service. Threads may share one."""

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def exchanges(self, prefix: str = "") -> list[str]:
        """Return the names of the exchanges that the caller may read."""

        def send() -> list[str]:
            infos = self.client.list_flights(prefix.encode(), self.options)
            return ["/".join(n.decode() for n in info.descriptor.path) for info in infos]

        return self.call(send)

    def exchange(self, name: str) -> RemoteExchange:
        """Return the exchange with a name, whether or not it exists."""
        return RemoteExchange(self, name)

    def submit(self, sql: str | None = None, *, view: str | None = None) -> RemoteStatement:
        """Submit a statement to the service's Spark, as SQL text or as the name of a view."""
        arguments = {"sql": sql, "view": view}
        body = {name: value for name, value in arguments.items() if value is not None}
        return RemoteStatement(self, self.action("SubmitQuery", body, retries=Retries(0))["query"])

    def query(self, number: int) -> RemoteStatement:
        """Return a statement that was submitted before, by its number."""
        return RemoteStatement(self, number)

    def health(self) -> dict[str, Any]:
        """Return whether the service accepts calls, and how many are active."""
        answer: dict[str, Any] = self.action("Health", {})
        return answer
