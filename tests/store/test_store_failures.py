"""Errors of storage name the file and hide secrets; an unsafe store is refused."""

from __future__ import annotations

import errno
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pytest
from botocore.exceptions import ClientError
from layouts import write_options
from s3fs.errors import translate_boto_error

from ffq_spark.errors import BadOption, StoreFailed, StoreUnsafe
from ffq_spark.exchange.exchange import Exchange
from ffq_spark.exchange.write.local_write import write_batches
from ffq_spark.store import Store
from ffq_spark.store.local import LocalBackend
from ffq_spark.store.remote import RemoteBackend

WRONG = "a-wrong-secret-0123456789"

VERBS: dict[str, Callable[[Store], Any]] = {
    "read": lambda store: store.read("d/file"),
    "read_range": lambda store: store.read_range("d/file", 1, 2),
    "create_once": lambda store: store.create_once("d/file", b"x"),
    "write": lambda store: store.write("d/file", [b"x"]),
    "list": lambda store: store.list("d/file"),
    "delete": lambda store: store.delete("d/file"),
    "walk": lambda store: store.walk("d/file"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_refused_request_names_the_file_and_keeps_the_secret(verb: str, s3: Any) -> None:
    store = Store(f"s3://{s3.bucket}/x", {**s3.storage_options, "secret": WRONG})
    with pytest.raises(StoreFailed) as caught:
        VERBS[verb](store)
    assert caught.value.path == f"s3://{s3.bucket}/x/d/file"
    printed = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + repr(store)
    assert WRONG not in printed and s3.secret not in printed


@pytest.mark.parametrize("verb", VERBS)
def test_a_server_that_is_not_there_is_a_store_that_failed(verb: str) -> None:
    options = {
        "key": "k",
        "secret": WRONG,
        "endpoint_url": "http://127.0.0.1:1",
        "config_kwargs": {"retries": {"max_attempts": 1}, "connect_timeout": 1},
    }
    with pytest.raises(StoreFailed, match="s3://bucket/x/d/file") as caught:
        VERBS[verb](Store("s3://bucket/x", options))
    assert WRONG not in str(caught.value)


# --- stores that cannot create once -----------------------------------------------------------


class IgnorantBackend(LocalBackend):
    """A backend that ignores the condition of a create-once write, as some servers do."""

    create_once = "conditional-put"

    def create(self, path: str, data: bytes) -> None:
        self.write(path, [memoryview(data)])


class IncapableBackend(LocalBackend):
    """A backend that reports that it cannot create once."""

    create_once = ""

    def create(self, path: str, data: bytes) -> None:
        raise NotImplementedError


class CheckingBackend(LocalBackend):
    """A backend that checks for the file and then writes it, as fsspec does for most clients."""

    create_once = ""


class OpenStore(Protocol):
    def __call__(self, *, unsafe_commit: bool = False) -> Store: ...


@pytest.fixture(params=[IgnorantBackend, IncapableBackend, CheckingBackend])
def open_unsafe(request: pytest.FixtureRequest, tmp_path: Path) -> OpenStore:
    """Return a function that opens a store which cannot create once."""
    root = str(tmp_path)

    def open_store(*, unsafe_commit: bool = False) -> Store:
        return Store(root, backend=request.param(root), unsafe_commit=unsafe_commit)

    return open_store


def test_a_store_that_cannot_create_once_is_refused(open_unsafe: OpenStore) -> None:
    with pytest.raises(StoreUnsafe, match="unsafeCommit"):
        open_unsafe().probe_create_once()
    assert open_unsafe().walk("") == []


@pytest.mark.parametrize("kind", [IgnorantBackend, IncapableBackend])
def test_nothing_is_written_to_a_store_that_cannot_create_once(
    kind: type[LocalBackend], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write opens its own store, so the test makes every local backend unsafe."""
    root = str(tmp_path)
    batch = pa.record_batch({"k": [1, 2, 3]})
    monkeypatch.setattr(LocalBackend, "create_once", kind.create_once)
    monkeypatch.setattr(LocalBackend, "create", kind.create)
    with pytest.raises(StoreUnsafe):
        write_batches(root, [batch], options=write_options())
    assert Store(root).walk("") == []
    write_batches(root, [batch], options=write_options(unsafe_commit=True))
    assert Exchange(root).read().read_all().num_rows == 3
    assert b'"create_once": "unsafe"' in (tmp_path / "_ffq/format.json").read_bytes()


def test_an_unsafe_store_that_was_allowed_still_keeps_the_first(open_unsafe: OpenStore) -> None:
    store = open_unsafe(unsafe_commit=True)
    assert store.probe_create_once() == "unsafe"
    assert store.create_once("r", b"mine") and store.create_once("r", b"mine")
    assert not store.create_once("r", b"yours")
    assert store.read("r") == b"mine"


def test_a_safe_store_stays_safe_where_unsafe_is_allowed(tmp_path: Path) -> None:
    assert Store(str(tmp_path), unsafe_commit=True).probe_create_once() == "link"


class RefusingBackend(LocalBackend):
    """A backend whose next call of `create` or `delete` raises an error."""

    def __init__(self, root: str, verb: str, error: OSError) -> None:
        super().__init__(root)
        self._refused, self._error = verb, error

    def _refuse(self, verb: str) -> None:
        if verb == self._refused:
            self._refused = ""
            raise self._error

    def create(self, path: str, data: bytes) -> None:
        self._refuse("create")
        super().create(path, data)

    def delete(self, path: str) -> None:
        self._refuse("delete")
        super().delete(path)


@pytest.mark.parametrize("number", [errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_links_is_unsafe(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: str) -> None:
        raise OSError(number, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    assert Store(str(tmp_path), unsafe_commit=True).probe_create_once() == "unsafe"
    with pytest.raises(StoreUnsafe, match="unsafeCommit"):
        Store(str(tmp_path)).probe_create_once()
    with pytest.raises(StoreFailed, match="no links here"):
        Store(str(tmp_path)).create_once("r", b"mine")


def test_a_server_that_does_not_know_the_condition_is_unsafe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        answer = {"Error": {"Code": "NotImplemented", "Message": "a header is not implemented"}}
        raise translate_boto_error(ClientError(answer, "PutObject"))

    monkeypatch.setattr(RemoteBackend, "_create", refuse)
    root = "memory://does-not-know-the-condition"
    assert Store(root, unsafe_commit=True).probe_create_once() == "unsafe"
    with pytest.raises(StoreUnsafe, match="unsafeCommit"):
        Store(root).probe_create_once()


@pytest.mark.parametrize("unsafe", [False, True])
def test_a_probe_that_cannot_be_deleted_finds_a_safe_store(unsafe: bool, tmp_path: Path) -> None:
    for error in (PermissionError(errno.EACCES, "denied"), TimeoutError("no answer")):
        backend = RefusingBackend(str(tmp_path), "delete", error)
        store = Store(str(tmp_path), backend=backend, unsafe_commit=unsafe)
        assert store.probe_create_once() == store.create_once_by == "link"


@pytest.mark.parametrize("error", [PermissionError(errno.EACCES, "denied"), TimeoutError("slow")])
def test_a_probe_without_an_answer_makes_no_store_unsafe(error: OSError, tmp_path: Path) -> None:
    """The next call probes again: two writers of an unsafe store could lose a step."""
    backend = RefusingBackend(str(tmp_path), "create", error)
    store = Store(str(tmp_path), backend=backend, unsafe_commit=True)
    with pytest.raises(StoreFailed, match=str(error.args[-1])):
        store.create_once("r", b"mine")
    assert store.create_once("r", b"mine") and store.create_once_by == "link"


# --- invalid roots ----------------------------------------------------------------------------


@pytest.mark.parametrize("open", [Store, Exchange])
def test_an_unknown_protocol_is_a_bad_option(open: Callable[[str], object]) -> None:
    with pytest.raises(BadOption, match="storage protocol 'nosuch' is not available") as caught:
        open("nosuch://place")
    assert caught.value.option == "path"


def test_no_root_is_a_bad_option() -> None:
    with pytest.raises(BadOption) as caught:
        Store("")
    assert caught.value.option == "path"
