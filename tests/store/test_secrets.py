"""No text that leaves the store contains a secret of the storage options."""

from __future__ import annotations

import base64
import json
import logging
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from conftest import Place
from s3proxy import Fault, S3Proxy

from ffq_spark.errors import BadOption, StoreFailed
from ffq_spark.exchange.exchange import Exchange
from ffq_spark.store import Leftover, Store
from ffq_spark.store.location import open_backend
from ffq_spark.store.redaction import scrub
from ffq_spark.store.s3 import S3Backend

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
    for told in (SECRET, QUOTED, f"https://host/?sig={SECRET}&x=1", f"AccountKey={SECRET};"):
        found = scrub(f"refused: {told}!", options)
        assert found.startswith("refused: ") and "***" in found
        assert SECRET not in found and QUOTED not in found


LINES = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\n-----END KEY-----\n"


@pytest.mark.parametrize(
    ("options", "told", "hidden"),
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
    options: dict[str, Any], told: str, hidden: str
) -> None:
    assert hidden in told and hidden not in scrub(told, options)


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
    for told in (address, repr(address), f"Invalid endpoint: {address}", login, SECRET, QUOTED):
        found = scrub(f"refused: {told}!", options)
        assert SECRET not in found and QUOTED not in found and "Zebra" not in found
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
    found = scrub(f"refused: {SECRET}!", options)
    assert SECRET not in found and "refused" in found


def test_a_login_of_few_characters_is_scrubbed() -> None:
    options = {"endpoint_url": "htp//u:PW@host"}
    for told in ("htp//u:PW@host", "htp//u:PW@host/bucket", "http://u:PW@host", "login u:PW"):
        assert "PW" not in scrub(told, options)
    basic = base64.b64encode(b"u:PW").decode()
    assert basic not in scrub(f"Authorization: Basic {basic}", options)


def test_an_address_without_a_login_stays() -> None:
    for address in ("http://127.0.0.1:1/", "https://s3.eu-west-1.amazonaws.com", "http://[::1]:9"):
        options = {"endpoint_url": address, "config_kwargs": {"proxies": {"http": address}}}
        told = f'Could not connect to the endpoint URL: "{address}"'
        assert scrub(told, options) == told


@pytest.mark.parametrize("unsafe", [False, True])
@pytest.mark.parametrize("verb", ["read", "create_once", "list", "probe"])
def test_an_endpoint_that_is_no_url_is_not_repeated(verb: str, unsafe: bool) -> None:
    store = Store("s3://bucket/x", {"endpoint_url": "htp//u:PW@host"}, unsafe_commit=unsafe)
    with pytest.raises(StoreFailed) as caught:
        VERBS[verb](store)
    told = "".join(traceback.format_exception(caught.value))
    assert "PW" not in told and "u:" not in told, told


def test_the_rest_of_a_text_stays() -> None:
    options = {"key": "k", "secret": "", "anon": True, "endpoint_url": "http://127.0.0.1:1/"}
    told = "cannot connect to http://127.0.0.1:1/ with key k"
    assert scrub(told, options) == told


# --- errors -----------------------------------------------------------------------------------


class Talkative(Exception):
    """An error of a client that repeats the client's arguments."""


VERBS: dict[str, Callable[[Store], Any]] = {
    "read": lambda store: store.read("f"),
    "read_range": lambda store: store.read_range("f", 1, 2),
    "read_many": lambda store: store.read_many(["f", "g"]),
    "create_once": lambda store: store.create_once("f", b"x"),
    "write": lambda store: store.write("f", [b"x"]),
    "replace": lambda store: store.replace("f", b"x"),
    "list": lambda store: store.list("d"),
    "walk": lambda store: store.walk("d"),
    "delete": lambda store: store.delete("f"),
    "delete_many": lambda store: store.delete_many(["f"]),
    "scan": lambda store: list(store.scan("d")),
    "tree": lambda store: list(store.tree("d")),
    "leftovers": lambda store: list(store.leftovers(0)),
    "delete_leftover": lambda store: store.delete_leftover(Leftover("f", "upload")),
    "probe": lambda store: store.probe_create_once(),
}


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_lets_a_clients_error_tell_the_secret(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the error nor its traceback, which Spark passes on, contains the secret."""

    def refuse(*_: object, **__: object) -> Any:
        try:
            raise ValueError(f"secret={SECRET}")
        except ValueError as error:
            raise Talkative(f"key AKIA-hidden with {SECRET} is refused") from error

    monkeypatch.setattr(S3Backend, "_connect", refuse)
    store = Store("s3://bucket/x", {"key": "AKIA-hidden", "secret": SECRET})
    with pytest.raises(StoreFailed, match=r"key \*\*\* with \*\*\* is refused") as caught:
        VERBS[verb](store)
    told = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert SECRET not in told and "AKIA-hidden" not in told


def test_an_error_without_a_secret_keeps_its_cause(proxied: Place, proxy: S3Proxy) -> None:
    options = {**proxied.storage_options, "config_kwargs": {"retries": {"max_attempts": 0}}}
    with proxy.faults(Fault("503")), pytest.raises(StoreFailed) as caught:
        Store(proxied.root, options).read("f")
    assert isinstance(caught.value.__cause__, OSError)


def test_a_key_that_the_server_repeats_is_scrubbed(s3: Any) -> None:
    options = {**s3.storage_options, "key": "AKIAZEBRA7719QUARTZ"}
    with pytest.raises(StoreFailed) as caught:
        Store(f"s3://{s3.bucket}/x", options).read("f")
    assert "AKIAZEBRA7719QUARTZ" not in "".join(traceback.format_exception(caught.value))


def test_logs_and_reprs_hold_no_secret(proxied: Place, caplog: pytest.LogCaptureFixture) -> None:
    """Logs and reprs of the store and of its client are searched, at the level DEBUG."""
    caplog.set_level(logging.DEBUG)
    options = {**proxied.storage_options, "secret": SECRET}
    backend = open_backend(proxied.root, options)
    store = Store(proxied.root, options, backend=backend)
    with pytest.raises(StoreFailed):
        store.read("f")
    exchange = Exchange(proxied.root, options)
    assert "get_object" in caplog.text
    assert SECRET not in caplog.text + repr(store) + repr(backend) + repr(exchange)


# --- roots ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "root",
    [
        "s3://AKIA:Zebra@bucket/x",
        "s3a://AKIA:Zebra@bucket/x",
        "s3://AKIA:Ze/bra@bucket/x",
        "s3://Zebra@bucket/x",
        "gs://Zebra@bucket/x",
        "https://me:Zebra@host/x",
        "https://me:Ze/bra@host/x",
        "abfss://container:Zebra@account.dfs.core.windows.net/x",
        "abfs://c@account.dfs.core.windows.net/x?sv=1&sig=Zebra",
        "s3://bucket/x?X-Amz-Signature=Zebra",
        "simplecache::s3://AKIA:Zebra@bucket/x",
    ],
)
@pytest.mark.parametrize("open", [Store, Exchange])
def test_a_root_with_credentials_is_refused_and_not_repeated(
    root: str, open: Callable[[str], object]
) -> None:
    with pytest.raises(BadOption, match="storage options") as caught:
        open(root)
    told = "".join(traceback.format_exception(caught.value))
    assert "bra@" not in str(caught.value) and "AKIA" not in str(caught.value)
    assert caught.value.option == "path" and "sig=Zebra" not in str(caught.value)
    assert "Zebra" not in told.split("BadOption")[-1]


@pytest.mark.parametrize(
    "root",
    [
        "s3://bucket/a@b/c:d",
        "s3://bucket/step?x=1",
        "s3://arn:aws:s3:eu-west-1:123456789012:accesspoint/name/x",
        "memory://a:b/c",
        "/data/a:b@c",
        "/data/x?sig=1",
        "file:/data/me:you@there",
    ],
)
def test_a_root_that_only_looks_odd_is_taken(root: str) -> None:
    open_backend(root, {})


def test_an_azure_container_before_its_account_is_no_login() -> None:
    """The root is accepted; only the client for this protocol is not installed here."""
    with pytest.raises(BadOption, match="storage protocol 'abfs' is not available"):
        open_backend("abfss://container@account.dfs.core.windows.net/x", {})
