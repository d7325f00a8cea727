"""Addresses and files that `ffq.connect` refuses."""

from __future__ import annotations

from typing import Any

import pytest

import ffq_spark as ffq
from ffq_spark.errors import BadOption, Unavailable


@pytest.mark.parametrize("option", ["tls_ca", "tls_certificate", "tls_key"])
def test_a_file_that_cannot_be_read_is_named(option: str) -> None:
    options: dict[str, Any] = {option: "/none/file.pem"}
    with pytest.raises(BadOption, match=r"cannot read /none/file\.pem: No such file") as caught:
        ffq.connect("grpc+tls://127.0.0.1:1", **options)
    assert caught.value.option == option


def test_an_address_of_another_protocol_is_refused() -> None:
    with pytest.raises(BadOption, match="http://"):
        ffq.connect("http://127.0.0.1:1")


def test_a_service_that_does_not_answer_is_unavailable() -> None:
    with ffq.connect("grpc://127.0.0.1:1", retries=0) as connection, pytest.raises(Unavailable):
        connection.health()


@pytest.mark.parametrize(
    "url", ["http://host:1?token=Zebra", "htp//host;sig=Zebra", "grpc//me%3AZebra%40host:1"]
)
def test_an_address_with_a_secret_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(BadOption) as caught:
        ffq.connect(url)
    assert caught.value.option == "url" and "Zebra" not in str(caught.value)
