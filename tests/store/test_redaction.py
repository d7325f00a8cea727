"""Secrets of storage options are recognized by their names, and hidden in every spelling."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from ffq_spark.store.redaction import scrub

SECRET = "Zebra/Quartz+7719"
QUOTED = "Zebra%2FQuartz%2B7719"


@pytest.mark.parametrize(
    "options",
    [
        {"key": SECRET},
        {"secret": SECRET},
        {"token": SECRET},
        {"password": SECRET},
        {"sas_token": f"?sv=2024&sig={SECRET}"},
        {"credential": SECRET},
        {"account_key": SECRET},
        {"connection_string": f"AccountName=me;AccountKey={SECRET};Suffix=x"},
        {"client_kwargs": {"aws_secret_access_key": SECRET}},
        {"client_kwargs": {"aws_session_token": SECRET}},
        {"token": {"type": "service_account", "private_key": SECRET}},
        {"s3_additional_kwargs": {"SSECustomerKey": SECRET}},
        {"a": [{"credentials": [SECRET]}]},
        {"secret": SECRET.encode()},
    ],
    ids=str,
)
def test_a_secret_is_scrubbed_wherever_it_is_given(options: dict[str, Any]) -> None:
    for message in (SECRET, QUOTED, f"https://host/?sig={SECRET}&x=1", f"AccountKey={SECRET};"):
        scrubbed = scrub(f"refused: {message}!", options)
        assert scrubbed.startswith("refused: ") and "***" in scrubbed
        assert SECRET not in scrubbed and QUOTED not in scrubbed


LINES = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\n-----END KEY-----\n"


@pytest.mark.parametrize(
    ("options", "message", "hidden"),
    [
        ({"token": 771977197719}, "no such token: 771977197719", "771977197719"),
        ({"auth": f"Bearer {SECRET}"}, f"token {SECRET} has expired", SECRET),
        ({"private_key": LINES}, f"bad key {LINES!r}", "MIIEvQ"),
        ({"private_key": LINES}, f"bad key {json.dumps(LINES)}", "MIIEvQ"),
        ({"private_key": LINES}, "line 2: MIIEvQIBADANBgkqhkiG9w0B", "MIIEvQ"),
        ({"secret": "Zebra\\Quartz"}, f"{ {'secret': 'Zebra' + chr(92) + 'Quartz'} }", "Quartz"),
    ],
)
def test_a_secret_is_scrubbed_in_every_spelling(
    options: dict[str, Any], message: str, hidden: str
) -> None:
    assert hidden in message and hidden not in scrub(message, options)


def test_a_limit_is_no_secret() -> None:
    assert scrub("waited 30000 ms", {"connection_timeout": 30000}) == "waited 30000 ms"


# All places of a login in a URL, with the mistakes that users make in URLs.
LOGINS = [
    f"https://me:{SECRET}@host/",
    f"htp//me:{SECRET}@host",
    f"http:/me:{SECRET}@host:1",
    f"me:{SECRET}@host",
    f"http://{SECRET}@host",
    f"http://me:{SECRET}",
    f"http//me:{SECRET}",
    f"https://host/{QUOTED}/bucket",
    f"https://host/?key={QUOTED}",
    f"https://host#{QUOTED}",
]


@pytest.mark.parametrize("address", LOGINS)
@pytest.mark.parametrize(
    "place",
    [
        lambda value: {"endpoint_url": value},
        lambda value: {"client_kwargs": {"endpoint_url": value}},
        lambda value: {"client_kwargs": json.dumps({"endpoint_url": value})},
        lambda value: {"config_kwargs": {"proxies": {"https": value}}},
        lambda value: {"session_kwargs": {"proxy": value}},
        lambda value: {"client_kwargs": {"trust": [{"proxy_urls": [value]}]}},
        lambda value: {"account_host": value},
        lambda value: {"uri": value},
    ],
    ids=lambda place: json.dumps(place("…"), ensure_ascii=False),
)
def test_an_address_that_is_more_than_a_host_is_scrubbed_by_its_options_name(
    place: Callable[[str], dict[str, Any]], address: str
) -> None:
    options = place(address)
    login = address.rpartition("@")[0]
    for message in (address, repr(address), f"Invalid endpoint: {address}", login, SECRET, QUOTED):
        scrubbed = scrub(f"refused: {message}!", options)
        assert SECRET not in scrubbed and QUOTED not in scrubbed and "Zebra" not in scrubbed
    assert scrub("me", options) == "me"


@pytest.mark.parametrize(
    "options",
    [
        {"passphrase": SECRET},
        {"username": SECRET},
        {"kerb_ticket": SECRET},
        {"session_kwargs": {"headers": {"X-Vault": SECRET}}},
        {"client_kwargs": {"cookies": {"id": SECRET}}},
        {"client_kwargs": json.dumps({"aws_secret_access_key": SECRET})},
        {"token": json.dumps({"private_key": f"{SECRET}\nMIIEvQIBADANBgkqhkiG9w0B"})},
        {"storage": f"DefaultEndpointsProtocol=https;AccountKey={SECRET};Suffix=x"},
        {"anything": f"https://me:{SECRET}@host"},
    ],
    ids=str,
)
def test_names_and_values_that_hide_a_secret_are_known(options: dict[str, Any]) -> None:
    scrubbed = scrub(f"refused: {SECRET}!", options)
    assert SECRET not in scrubbed and "refused" in scrubbed


def test_a_login_of_few_characters_is_scrubbed() -> None:
    options = {"endpoint_url": "htp//u:PW@host"}
    for message in ("htp//u:PW@host", "htp//u:PW@host/bucket", "http://u:PW@host", "login u:PW"):
        assert "PW" not in scrub(message, options)
    basic = base64.b64encode(b"u:PW").decode()
    assert basic not in scrub(f"Authorization: Basic {basic}", options)


def test_an_address_without_a_login_stays() -> None:
    for address in ("http://127.0.0.1:1/", "https://s3.eu-west-1.amazonaws.com", "http://[::1]:9"):
        options = {"endpoint_url": address, "config_kwargs": {"proxies": {"http": address}}}
        message = f'Could not connect to the endpoint URL: "{address}"'
        assert scrub(message, options) == message


def test_the_rest_of_a_text_stays() -> None:
    options = {"key": "k", "secret": "", "anon": True, "endpoint_url": "http://127.0.0.1:1/"}
    told = "cannot connect to http://127.0.0.1:1/ with key k"
    assert scrub(told, options) == told


@pytest.mark.parametrize(
    ("text", "scrubbed"),
    [
        ("Invalid endpoint: htp//u:PW@host", "Invalid endpoint: htp//***@host"),
        ("no route to 'http://u:PW@host:1/b'", "no route to 'http://***@host:1/b'"),
        ("no route to http://u:P/W@host", "no route to http://***@host"),
        ("no bucket s3:/KEY:PW@b/x", "no bucket s3:/***@b/x"),
        ("//u:P@W@host", "//***@host"),
        ("no route to https://TOKEN@host/x", "no route to https://***@host/x"),
    ],
)
def test_a_login_that_no_option_gave_is_scrubbed(text: str, scrubbed: str) -> None:
    """It may come from the environment, or from a configuration file of the client."""
    assert scrub(text, {}) == scrubbed


@pytest.mark.parametrize(
    "text",
    [
        "http://127.0.0.1:9000/bucket/a@b",
        "http://[::1]:9000/bucket/a@b",
        "s3://arn:aws:s3:eu-west-1:123456789012:accesspoint/name/a@b",
        "abfs://container@account.dfs.core.windows.net/x",
        "No such file or directory: '/data/me:you@there'",
        "error: see https://host/x and ask me@host",
    ],
)
def test_an_address_with_an_at_sign_but_no_password_stays(text: str) -> None:
    assert scrub(text, {}) == text


@pytest.mark.parametrize(
    "name",
    ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "HTTPS_PROXY", "http_proxy", "ALL_PROXY"],
)
@pytest.mark.parametrize("address", LOGINS)
def test_an_address_of_the_environment_is_scrubbed(
    name: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, address)
    for told in (address, SECRET, QUOTED):
        found = scrub(f"refused: {told}!", {})
        assert SECRET not in found and QUOTED not in found and "Zebra" not in found


def test_hosts_that_need_no_proxy_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1,.internal.example")
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128/")
    told = "cannot connect to 127.0.0.1 through http://proxy.example:3128/"
    assert scrub(told, {}) == told
