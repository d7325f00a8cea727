"""The requests that each operation sends to S3, which cost money and time, and their tries."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from conftest import Place
from s3proxy import Fault, S3Proxy

from ffq_spark.errors import StoreFailed
from ffq_spark.store import Store
from ffq_spark.store.s3 import S3Backend

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


def test_a_bulk_delete_that_names_files_it_left_is_not_done(
    proxied: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 answers 200 with a list of files that it did not delete, here because of throttling."""
    backend = S3Backend(proxied.root.removeprefix("s3://"), proxied.storage_options)
    store = Store(proxied.root, backend=backend)
    store.write("d/f", [b"x"])
    client = backend.client
    real, answers = client.call_s3, [{"Errors": [{"Key": "d/f", "Code": "SlowDown"}]}]

    def throttled(method: str, **request: Any) -> Any:
        return answers.pop() if answers else real(method, **request)

    monkeypatch.setattr(client, "call_s3", throttled)
    store.delete_many(["d/f"])
    assert answers == [] and store.walk("d") == []
    answers.append({"Errors": [{"Key": "d/f", "Code": "AccessDenied"}]})
    with pytest.raises(StoreFailed, match="1 of 1 files were not deleted"):
        store.delete_many(["d/f"])


def test_what_is_refused_is_asked_once(proxied: Place, proxy: S3Proxy) -> None:
    store = Store(proxied.root, {**proxied.storage_options, "secret": "wrong-secret"})
    with pytest.raises(StoreFailed, match="PermissionError"):
        store.read("f")
    assert proxy.counts() == {"GET": 1}


@pytest.mark.parametrize(
    ("retries", "tries"),
    [({"max_attempts": 0}, 1), ({"max_attempts": "2"}, 3), ({"total_max_attempts": 2}, 2)],
)
def test_a_user_may_say_how_often(
    proxied: Place, proxy: S3Proxy, retries: dict[str, Any], tries: int
) -> None:
    options = {**proxied.storage_options, "config_kwargs": {"retries": retries}}
    with proxy.faults(Fault("503")), pytest.raises(StoreFailed):
        Store(proxied.root, options).read("f")
    assert proxy.counts() == {"GET": tries}
