"""No text that leaves the store contains a secret of the storage options."""

from __future__ import annotations

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
from ffq_spark.store.s3 import S3Backend

SECRET = "Zebra/Quartz+7719"


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
    printed = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert SECRET not in printed and "AKIA-hidden" not in printed


@pytest.mark.parametrize("unsafe", [False, True])
@pytest.mark.parametrize("verb", ["read", "create_once", "list", "probe"])
def test_an_endpoint_that_is_no_url_is_not_repeated(verb: str, unsafe: bool) -> None:
    store = Store("s3://bucket/x", {"endpoint_url": "htp//u:PW@host"}, unsafe_commit=unsafe)
    with pytest.raises(StoreFailed) as caught:
        VERBS[verb](store)
    printed = "".join(traceback.format_exception(caught.value))
    assert "PW" not in printed and "u:" not in printed, printed


@pytest.mark.parametrize("address", ["htp//u:PaSsW0rd@127.0.0.1:1", "http//u:PaS/sW0rd@host"])
def test_an_endpoint_of_the_environment_is_not_repeated(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    # The client reads the environment when it is made, and processes share clients by options.
    store = Store("s3://bucket/x", {"client_kwargs": {"region_name": f"at-{len(address)}"}})
    with pytest.raises(StoreFailed) as caught:
        store.read("f")
    told = "".join(traceback.format_exception(caught.value))
    assert "sW0rd" not in told, told


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
        # Slashes too few or too many, or without the colon: the text may be taken for a path.
        "s3:/AKIA:Zebra@bucket/x",
        "s3:///AKIA:Zebra@bucket/x",
        "s3a:/AKIA:Ze/bra@bucket/x",
        "http:/me:Zebra@host/x",
        "s3//AKIA:Zebra@bucket/x",
        "s3//AKIA:Ze/bra@bucket/x",
        "S3//AKIA:Zebra@bucket/x",
        "s3/AKIA:Zebra@bucket/x",
        "http//me:Zebra@host/x",
        "htp//me:Zebra@host/x",
        "https//Zebra@host/x",
        "https//host/x?sig=Zebra",
        "/home/me/s3:/AKIA:Zebra@bucket/x",
        "file:///home/me/s3:/AKIA:Zebra@bucket/x",
        "file://me:Zebra@host/x",
        "AKIA:Zebra@bucket/x",
        "a:Zebra@bucket/x",
        # A token as the user, and logins that are percent-encoded.
        "https://Zebra@host/x",
        "s3://AKIA%3AZebra%40bucket/x",
        "https://me%253AZebra%2540host/x",
        # Parameters of every name that may hold a secret, wherever URLs can have them.
        "https://host/x?access_token=Zebra",
        "https://host/x?a=1&api_key=Zebra",
        "https://host/x?Signature=Zebra",
        "https://host/x#access_token=Zebra",
        "s3://bucket/x;token=Zebra",
        "abfs://c@account.dfs.core.windows.net/x%3Fsv=1%26sig%3DZebra",
    ],
)
@pytest.mark.parametrize("open", [Store, Exchange])
def test_a_root_with_credentials_is_refused_and_not_repeated(
    root: str, open: Callable[[str], object]
) -> None:
    with pytest.raises(BadOption, match="storage options") as caught:
        open(root)
    printed = "".join(traceback.format_exception(caught.value))
    assert "bra@" not in str(caught.value) and "AKIA" not in str(caught.value)
    assert caught.value.option == "path" and "sig=Zebra" not in str(caught.value)
    assert "Zebra" not in printed.split("BadOption")[-1]


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
        "file:///data/me:you@there",
        "/data/s3/team:a@b",
        "/data//run:1@host",
        "/data/a::b:c@d",
        "/backup/hdfs:/node:8020/a@b",
        "/backup/s3:/bucket/a@b",
        "./s3//team:a@b",
        "../a:b@c",
        "data/run:1@host",
        "2024-01-02T10:00:00@host/x",
        "s3/x:y",
        "s3://bucket/monkey=1/userid=2/x",
        "s3:///bucket/x",
        "s3://bucket/a%40b/c%3Ad",
        "memory://a/b;c=1",
    ],
)
def test_a_root_that_only_looks_odd_is_taken(root: str) -> None:
    open_backend(root, {})


def test_an_azure_container_before_its_account_is_no_login() -> None:
    """The root is accepted; only the client for this protocol is not installed here."""
    with pytest.raises(BadOption, match="storage protocol 'abfs' is not available"):
        open_backend("abfss://container@account.dfs.core.windows.net/x", {})
