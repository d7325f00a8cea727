"""The backend for local and mounted file systems: temporary files, links and file sizes."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ffq_spark.errors import StoreFailed
from ffq_spark.store import Leftover, Store
from ffq_spark.store.local import LocalBackend

FOREVER_MS = 1 << 60


@pytest.fixture
def backend(tmp_path: Path) -> LocalBackend:
    return LocalBackend(str(tmp_path))


def test_a_create_leaves_no_temporary_file_whether_it_wins_or_loses(
    backend: LocalBackend, tmp_path: Path
) -> None:
    backend.create("d/r", b"mine")
    with pytest.raises(FileExistsError):
        backend.create("d/r", b"yours")
    assert os.listdir(tmp_path / "d") == ["r"]


def test_a_create_wins_though_its_temporary_file_is_deleted_after_the_link(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def link_and_lose(source: str, target: str) -> None:
        link(source, target)
        os.unlink(source)

    monkeypatch.setattr(os, "link", link_and_lose)
    backend.create("d/r", b"mine")
    assert backend.read("d/r") == b"mine"


def test_a_create_needs_no_right_to_delete_its_temporary_file(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(f"cannot delete {path}")

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        backend.create("_ffq/steps/r", b"mine")
        with pytest.raises(FileExistsError):
            backend.create("_ffq/steps/r", b"yours")
    assert backend.read("_ffq/steps/r") == b"mine"
    assert len(list(backend.leftovers(FOREVER_MS))) == 2


@pytest.mark.parametrize("verb", ["create", "replace"])
def test_a_write_that_dies_leaves_a_leftover_and_no_file(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """Listings do not show the temporary file, and gc finds it once it is old enough."""

    def die(*_: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        for name in ("link", "replace", "unlink"):
            patch.setattr(os, name, die)
        getattr(backend, verb)("_ffq/steps/r", b"mine")
    assert list(backend.scan("_ffq/steps")) == []
    assert list(backend.leftovers(0)) == []
    (leftover,) = backend.leftovers(FOREVER_MS)
    assert leftover.path.startswith("_ffq/steps/.r.") and leftover.path.endswith(".tmp")
    for _ in range(2):
        backend.delete_leftover(leftover)
    assert list(backend.leftovers(FOREVER_MS)) == []


def test_only_temporary_files_of_records_are_leftovers(
    backend: LocalBackend, tmp_path: Path
) -> None:
    for path in ("_ffq/.a.tmp", "_ffq/a.tmp", "_ffq/.a", "shuffle/.a.tmp"):
        backend.write(path, [memoryview(b"x")])
    assert list(backend.leftovers(FOREVER_MS)) == [Leftover("_ffq/.a.tmp")]


def test_the_clock_leaves_no_file_and_is_unknown_without_records(
    backend: LocalBackend, tmp_path: Path
) -> None:
    assert backend.clock_ms() is None
    (tmp_path / "_ffq").mkdir()
    moment = backend.clock_ms()
    assert moment is not None and list(backend.leftovers(moment + 60_000)) == []
    assert os.listdir(tmp_path / "_ffq") == []


def test_links_to_directories_are_neither_entered_nor_listed_in_a_tree(
    backend: LocalBackend, tmp_path: Path
) -> None:
    for path in ("d/1/x", "d/2/x", "elsewhere/precious"):
        backend.write(path, [memoryview(b"x")])
    (tmp_path / "d/link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "d/1/file").symlink_to(tmp_path / "elsewhere/precious")
    tree = {directory.path: directory.files for directory in backend.tree("d", lambda _: False)}
    assert {path: sorted(name for name, _ in files) for path, files in tree.items()} == {
        "d/1": ["d/1/file", "d/1/x"],
        "d/2": ["d/2/x"],
        "d": [],
    }
    kept = [directory.path for directory in backend.tree("d", lambda path: path == "d/1")]
    assert kept == ["d/2", "d"]


def test_directories_are_deleted_only_if_they_are_empty(
    backend: LocalBackend, tmp_path: Path
) -> None:
    backend.write("d/full/x", [memoryview(b"x")])
    (tmp_path / "d/empty").mkdir()
    backend.delete_directories(["d/full", "d/empty", "d/missing"])
    assert os.listdir(tmp_path / "d") == ["full"]


def test_no_more_memory_is_taken_than_a_file_has_bytes(tmp_path: Path) -> None:
    """A damaged record may request far more than the file has."""
    store = Store(str(tmp_path))
    store.write("f", [b"x" * 100_000])
    assert len(store.read_range("f", 10, 1 << 60)) == 99_990


@pytest.mark.parametrize("reported", [0, 70_000])
def test_a_file_with_more_bytes_than_its_reported_size_is_read_whole(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch, reported: int
) -> None:
    """A mounted file system may report an old size of a file that another machine has written."""
    body = os.urandom(150_000)
    backend.write("f", [memoryview(body)])

    def fstat(_: int) -> Any:
        return SimpleNamespace(st_size=reported)

    monkeypatch.setattr("ffq_spark.store.local.os.fstat", fstat)
    assert bytes(backend.read("f")) == body


@pytest.mark.parametrize("verb", ["read", "create_once", "write"])
def test_a_directory_in_the_place_of_a_file_is_a_store_that_failed(
    verb: str, tmp_path: Path
) -> None:
    (tmp_path / "d" / "file").mkdir(parents=True)
    if verb == "create_once":
        (tmp_path / "d" / "file").rmdir()
        (tmp_path / "d").rmdir()
        (tmp_path / "d").write_bytes(b"a file")
    store = Store(str(tmp_path))
    arguments: dict[str, tuple[Any, ...]] = {"create_once": (b"x",), "write": ([b"x"],)}
    with pytest.raises(StoreFailed, match=str(tmp_path / "d" / "file")):
        getattr(store, verb)("d/file", *arguments.get(verb, ()))
