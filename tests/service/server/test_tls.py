"""TLS, mutual TLS, and ports that other machines can reach."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
import trustme
from service_scene import token_file

import ffq_spark as ffq
from ffq_spark.errors import (
    BadOption,
    Unavailable,
)


def pem(place: Path, name: str, *blobs: Any) -> str:
    path = place / f"{name}.pem"
    path.write_bytes(b"".join(blob.bytes() for blob in blobs))
    path.chmod(0o600)
    return str(path)


def certificate(place: Path, name: str, ca: trustme.CA, **given: Any) -> dict[str, str]:
    made = ca.issue_cert("localhost", "127.0.0.1", **given)
    return {
        "tls_certificate": pem(place, f"{name}-cert", *made.cert_chain_pems),
        "tls_key": pem(place, f"{name}-key", made.private_key_pem),
    }


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def test_other_machines_are_listened_to_only_behind_tokens_and_tls(lake: Path) -> None:
    path, _ = token_file(lake, reader=(["read"], None))
    roots = {"other": str(lake / "other")}
    for options in ({"host": "0.0.0.0"}, {"host": "0.0.0.0", "tokens": path}, {"host": "host"}):
        with pytest.raises(BadOption):
            ffq.serve(roots, port=0, **options)
    with ffq.serve(roots, port=0) as service:
        assert service.url.startswith("grpc+tcp://127.0.0.1:")


def test_tls_hides_the_rows_and_shows_who_serves(lake: Path, authority: trustme.CA) -> None:
    given = certificate(lake, "server", authority)
    ca = pem(lake, "ca", authority.cert_pem)
    strange = pem(lake, "strange", trustme.CA().cert_pem)
    with ffq.serve({"x": str(lake / "other")}, port=0, **given) as service:
        assert service.url.startswith("grpc+tls://")
        right = ffq.connect(service.url, tls_ca=ca)
        assert right.exchange("x").read().read_all().num_rows == 50
        for wrong in (
            ffq.connect(service.url, tls_ca=strange, retries=0),
            ffq.connect(service.url.replace("+tls", "+tcp"), retries=0),
        ):
            with pytest.raises(Unavailable):
                wrong.exchanges()


def test_a_certificate_that_has_expired_is_refused(lake: Path, authority: trustme.CA) -> None:
    past = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=1)
    given = certificate(lake, "old", authority, not_after=past)
    ca = pem(lake, "ca", authority.cert_pem)
    serving = ffq.serve({"x": str(lake / "other")}, port=0, **given)
    with serving as service, pytest.raises(Unavailable):
        ffq.connect(service.url, tls_ca=ca, retries=0).exchanges()


def test_mutual_tls_asks_callers_for_a_certificate_too(lake: Path, authority: trustme.CA) -> None:
    clients = trustme.CA()
    past = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=1)
    server = certificate(lake, "server", authority)
    ca = pem(lake, "ca", authority.cert_pem)
    accepted = pem(lake, "clients", clients.cert_pem)
    with ffq.serve({"x": str(lake / "other")}, port=0, tls_client_ca=accepted, **server) as service:
        right = certificate(lake, "right", clients)
        assert ffq.connect(service.url, tls_ca=ca, **right).exchanges() == ["x"]
        for wrong in (
            {},
            certificate(lake, "strange", trustme.CA()),
            certificate(lake, "expired", clients, not_after=past),
        ):
            with pytest.raises(Unavailable):
                ffq.connect(service.url, tls_ca=ca, retries=0, **wrong).exchanges()
