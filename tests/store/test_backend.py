"""All backends have the operations that a store needs, and the same answers to them."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from conftest import Place

from ffq_spark.store.backend import Backend, Directory, Entry, Leftover
from ffq_spark.store.confined import ConfinedBackend
from ffq_spark.store.local import LocalBackend
from ffq_spark.store.location import open_backend
from ffq_spark.store.remote import RemoteBackend
from ffq_spark.store.s3 import S3Backend

OPERATIONS = sorted(
    name for name, value in vars(Backend).items() if inspect.isfunction(value) and name[0] != "_"
)


@pytest.fixture
def backend(place: Place) -> Backend:
    return open_backend(place.root, place.storage_options)


def put(backend: Backend, path: str, data: bytes = b"x") -> None:
    backend.write(path, [memoryview(data)])


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("kind", [LocalBackend, ConfinedBackend, RemoteBackend, S3Backend])
def test_a_backend_takes_the_arguments_of_the_protocol(kind: type[Any], operation: str) -> None:
    declared = inspect.signature(getattr(Backend, operation)).parameters.values()
    own = inspect.signature(getattr(kind, operation)).parameters.values()
    assert [(p.name, p.default) for p in own] == [(p.name, p.default) for p in declared]


def test_a_backend_says_how_it_creates_a_file_once(backend: Backend) -> None:
    assert isinstance(backend.create_once, str) and backend.create_once


def test_what_does_not_exist_is_not_found_and_can_be_deleted(backend: Backend) -> None:
    with pytest.raises(FileNotFoundError):
        backend.read("d/f")
    assert list(backend.scan("d")) == []
    assert list(backend.tree("d", lambda _: False)) == []
    backend.delete("d/f")
    backend.delete_many(["d/f", "d/g"])
    backend.delete_directories(["d"])
    backend.delete_leftover(Leftover("_ffq/.f.tmp"))


def test_a_file_is_created_once_and_replaced_at_will(backend: Backend) -> None:
    backend.create("d/f", b"first")
    with pytest.raises(FileExistsError):
        backend.create("d/f", b"second")
    assert bytes(backend.read("d/f")) == b"first"
    backend.replace("d/f", b"third")
    assert bytes(backend.read("d/f")) == b"third"
    backend.write("d/f", [memoryview(b"four"), memoryview(b""), memoryview(b"th")])
    assert bytes(backend.read("d/f")) == b"fourth"


@pytest.mark.parametrize(
    ("start", "length", "data"),
    [(0, None, b"012345"), (2, None, b"2345"), (2, 3, b"234"), (4, 9, b"45"), (3, 0, b"")],
)
def test_a_range_has_the_bytes_that_the_file_has(
    backend: Backend, start: int, length: int | None, data: bytes
) -> None:
    put(backend, "d/f", b"012345")
    assert bytes(backend.read("d/f", start, length)) == data


def test_a_scan_lists_children_and_a_tree_lists_everything_below(backend: Backend) -> None:
    for path, size in (("d/f", 1), ("d/e/g", 2), ("d/e/h", 3), ("other/f", 4)):
        put(backend, path, bytes(size))
    children = {entry.name: entry for entry in backend.scan("d")}
    assert children["f"] == Entry("f", False, 1)
    assert sorted(children) == ["e", "f"] and children["e"].is_dir
    tree = list(backend.tree("d", lambda _: False))
    assert all(isinstance(directory, Directory) for directory in tree)
    files = sorted(file for directory in tree for file in directory.files)
    assert files == [("d/e/g", 2), ("d/e/h", 3), ("d/f", 1)]
    remaining = backend.tree("d", lambda directory: directory.endswith("/e"))
    assert [file for directory in remaining for file in directory.files] == [("d/f", 1)]


def test_many_files_are_deleted_together(backend: Backend) -> None:
    names = [f"d/{number}" for number in range(5)]
    for name in names:
        put(backend, name)
    backend.delete_many(names[:4])
    assert [entry.name for entry in backend.scan("d")] == ["4"]
