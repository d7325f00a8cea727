"""Check and load the options that protect a server's port: address, tokens and TLS."""

from __future__ import annotations

import ipaddress
from typing import Any

from ffq_spark.errors import BadOption
from ffq_spark.options import ServeOptions
from ffq_spark.service.auth.trusted_files import read_trusted


def tls_arguments(options: ServeOptions) -> dict[str, Any]:
    """Load the TLS files and return the arguments of a Flight server; empty without TLS.

    >>> tls_arguments(ServeOptions(tls_key="key.pem"))
    Traceback (most recent call last):
    ffq_spark.errors.BadOption: [FFQ_BAD_OPTION] tlsCertificate and tlsKey must be given together \
(option tlsKey). Correct the value; docs/options.md describes every option
    """
    if bool(options.tls_certificate) != bool(options.tls_key):
        raise BadOption("tlsCertificate and tlsKey must be given together", option="tlsKey")
    if not options.tls_certificate:
        if options.tls_client_ca:
            raise BadOption("tlsClientCa needs tlsCertificate and tlsKey", option="tlsCertificate")
        return {}
    certificate = read_trusted(options.tls_certificate, "tlsCertificate")
    key = read_trusted(options.tls_key, "tlsKey")
    arguments: dict[str, Any] = {"tls_certificates": [(certificate, key)]}
    if options.tls_client_ca:
        arguments["verify_client"] = True
        arguments["root_certificates"] = read_trusted(options.tls_client_ca, "tlsClientCa")
    return arguments


def refuse_unprotected(options: ServeOptions) -> None:
    """Raise BadOption if other machines could reach the port without tokens or TLS.

    >>> refuse_unprotected(ServeOptions(host="0.0.0.0"))
    Traceback (most recent call last):
    ffq_spark.errors.BadOption: [FFQ_BAD_OPTION] other machines can reach 0.0.0.0: set tokens and \
TLS, or insecure (option tokens). Correct the value; docs/options.md describes every option
    """
    if _is_loopback(options.host) or options.insecure:
        return
    for name, value in (("tokens", options.tokens), ("tlsCertificate", options.tls_certificate)):
        if not value:
            raise BadOption(
                f"other machines can reach {options.host}: set tokens and TLS, or insecure",
                option=name,
            )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
