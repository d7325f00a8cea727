"""The exact number of S3 requests of each operation of the store, which cost money and time."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from conftest import Place
from s3proxy import S3Proxy

from ffq_spark.store import Store

MIB = 1 << 20


@pytest.fixture
def store(proxied: Place) -> Store:
    return Store(proxied.root, proxied.storage_options)


@pytest.mark.parametrize("size", [0, 1, 16 * MIB, 32 * MIB])
def test_a_file_of_up_to_32_mib_is_one_put(store: Store, proxy: S3Proxy, size: int) -> None:
    body = bytes(size)
    store.write("f", [body[: 5 * MIB], b"", body[5 * MIB :]])
    assert proxy.counts() == {"PUT": 1}
    assert store.read("f") == body


def test_a_larger_file_is_an_upload_of_16_mib_parts(store: Store, proxy: S3Proxy) -> None:
    store.write("f", [bytes(3 * MIB)] * 11)
    assert proxy.counts() == {"CREATE_UPLOAD": 1, "PART": 3, "COMPLETE": 1}


def test_a_record_is_one_put_and_a_lost_race_is_one_get_more(store: Store, proxy: S3Proxy) -> None:
    assert store.create_once("r.json", b"mine")
    assert proxy.counts() == {"PUT": 1}
    assert not store.create_once("r.json", b"yours")
    assert proxy.counts() == {"PUT": 2, "GET": 1}


def test_a_large_record_is_one_put_too(store: Store, proxy: S3Proxy) -> None:
    assert store.create_once("r", bytes(40 * MIB))
    assert proxy.counts() == {"PUT": 1}


def test_a_read_is_one_get_of_just_that_range(store: Store, proxy: S3Proxy) -> None:
    store.write("d/f", [bytes(1000)])
    proxy.forget()
    store.read("d/f")
    store.read_range("d/f", 10, 20)
    store.read_range("d/f", 990, None)
    store.read_range("d/f", 990, 100)
    assert proxy.counts() == {"GET": 4}
    assert [request.range for request in proxy.requests] == [
        "",
        "bytes=10-29",
        "bytes=990-",
        "bytes=990-1089",
    ]
    assert {request.path.rsplit("/", 2)[1] for request in proxy.requests} == {"d"}


def test_a_file_that_is_missing_costs_one_get(store: Store, proxy: S3Proxy) -> None:
    assert store.read_optional("no") is None
    with pytest.raises(FileNotFoundError):
        store.read_range("no", 5, 5)
    assert proxy.counts() == {"GET": 2}


def test_a_listing_is_one_request_a_page(store: Store, proxy: S3Proxy) -> None:
    with store.uploads() as uploads:
        for number in range(1005):
            uploads.write(f"d/{number:04}", [b"x"])
    assert proxy.counts() == {"PUT": 1005}
    proxy.forget()
    assert len(store.list("d")) == 1005
    assert proxy.counts() == {"LIST": 2}
    assert len(store.walk("d")) == 1005
    assert proxy.counts() == {"LIST": 4}
    assert store.list("") and store.list("nothing") == [] and store.walk("nothing") == []
    assert proxy.counts() == {"LIST": 7}
    proxy.forget()
    store.delete_many([f"d/{number:04}" for number in range(1005)])
    assert proxy.counts() == {"DELETE_MANY": 2}
    store.delete("d/0000")
    assert proxy.counts() == {"DELETE_MANY": 2, "DELETE": 1}
    assert store.walk("") == []


def test_the_server_counts_the_same_requests(store: Store, proxy: S3Proxy, s3: Any) -> None:
    before = Counter(s3.request_counts())
    proxy.forget()
    for number in range(5):
        store.write(f"d/{number}", [b"x"])
        store.read(f"d/{number}")
    store.write("large", [bytes(MIB)] * 33)
    store.list("d")
    store.delete("d/0")
    assert proxy.counts() == {
        "PUT": 5,
        "GET": 5,
        "CREATE_UPLOAD": 1,
        "PART": 3,
        "COMPLETE": 1,
        "LIST": 1,
        "DELETE": 1,
    }
    theirs = Counter(s3.request_counts()) - before
    assert theirs == {"PUT": 8, "GET": 5, "POST": 2, "LIST": 1, "DELETE": 1}
