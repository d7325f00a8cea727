"""The operations of a store on every kind of storage: local disk, memory, a real S3 server."""

from __future__ import annotations

import gc
import multiprocessing
import pickle
import random
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from conftest import Place

from ffq_spark.errors import StoreFailed
from ffq_spark.store import Entry, Store
from ffq_spark.store.uploads import ParallelUploads

MIB = 1 << 20


@pytest.fixture
def store(place: Place) -> Store:
    return open_store(place)


def open_store(place: Place) -> Store:
    return Store(place.root, place.storage_options)


# --- create-once ------------------------------------------------------------------------------


def race(stores: list[Store], path: str, bodies: list[bytes]) -> list[bool]:
    """Create all bodies concurrently under one name, by several clients."""
    barrier = threading.Barrier(len(bodies))

    def create(number: int) -> bool:
        store = stores[number % len(stores)]
        barrier.wait()
        return store.create_once(path, bodies[number])

    with ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(create, range(len(bodies))))


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Switch threads as often as possible, so that races show."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty_threads")
def test_one_of_16_writers_wins_and_its_bytes_stay(place: Place) -> None:
    stores = [open_store(place) for _ in range(3)]
    for turn in range(3 if place.root.startswith("s3:") else 200):
        bodies = [f"writer {n} ".encode() * (n + 1) for n in range(16)]
        won = race(stores, f"records/{turn}.json", bodies)
        assert won.count(True) == 1
        assert stores[0].read(f"records/{turn}.json") == bodies[won.index(True)]


def test_a_writer_that_finds_its_own_bytes_has_won(store: Store) -> None:
    assert store.create_once("r.json", b"mine")
    assert store.create_once("r.json", b"mine")
    assert not store.create_once("r.json", b"yours")
    assert not store.create_once("r.json", b"")
    assert store.read("r.json") == b"mine"


def test_an_empty_record_is_a_record(store: Store) -> None:
    assert store.create_once("r.json", b"")
    assert not store.create_once("r.json", b"x")
    assert store.read("r.json") == b""


def test_the_probe_leaves_nothing_behind(store: Store) -> None:
    assert store.probe_create_once() in ("link", "conditional-put")
    assert store.walk("") == []


def test_a_record_may_be_larger_than_a_part_of_a_multipart_upload(store: Store) -> None:
    body = random.Random(0).randbytes(40 * MIB)
    assert store.create_once("r", body)
    assert not store.create_once("r", body[:-1])
    assert store.read("r") == body


# --- reading ----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 10, 200_000])
def test_a_range_ends_where_the_file_ends(store: Store, size: int) -> None:
    body = bytes(n % 251 for n in range(size))
    store.write("f", [body])
    assert store.read("f") == body
    for start in (0, 1, size - 1, size, size + 1, size + 100):
        for length in (None, 0, 1, size, size + 1, 1000, 100_000):
            if start >= 0:
                expected = body[start:] if length is None else body[start : start + length]
                assert bytes(store.read_range("f", start, length)) == expected


def test_many_files_are_read_in_their_order(store: Store) -> None:
    bodies = {"small": b"s", "large": b"l" * 200_000}
    for name, body in bodies.items():
        store.write(name, [body])
    names = ["large", "no/file", "small", "large"]
    assert store.read_many(names) == [bodies.get(name) for name in names]
    read = [None if data is None else bytes(data) for data in store.read_large(names)]
    assert read == [bodies.get(name) for name in names]


def test_what_is_not_there_is_not_found(store: Store) -> None:
    with pytest.raises(FileNotFoundError):
        store.read("no/file")
    with pytest.raises(FileNotFoundError):
        store.read_range("no/file", 3, 5)
    assert store.read_optional("no/file") is None
    assert store.list("no") == [] and store.walk("no") == []
    store.delete("no/file")


def test_many_files_are_read_in_the_order_that_was_asked_for(store: Store) -> None:
    for n in range(20):
        store.write(f"d/{n}", [str(n).encode()])
    names = [f"d/{n}" for n in (19, 3, 100, 0)]
    assert store.read_many(names) == [b"19", b"3", None, b"0"]
    assert store.read_many([]) == []


# --- listing and deleting ---------------------------------------------------------------------


def test_a_listing_has_the_children_alone_sorted_with_their_sizes(store: Store) -> None:
    for path in ("d/7/x", "d/_tmp-1/x", "d/007/x", "d/b.json", "d/a.json", "dd/x", "d.json"):
        store.write(path, [path.encode()])
    assert store.list("d") == [
        Entry("007", True, 0),
        Entry("7", True, 0),
        Entry("_tmp-1", True, 0),
        Entry("a.json", False, 8),
        Entry("b.json", False, 8),
    ]
    assert store.list("d/a.json") == []
    assert [entry.name for entry in store.list("")] == ["d", "d.json", "dd"]


def test_a_listing_never_shows_a_record_that_is_not_whole(place: Place) -> None:
    """A reader lists and reads during a write: every listed record can be read whole."""
    stop = threading.Event()

    def write() -> None:
        store = open_store(place)
        for n in range(30):
            store.create_once(f"d/{n}.json", b"x" * 100_000)
        stop.set()

    store = open_store(place)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(write)
        while not stop.is_set():
            for entry in store.list("d"):
                assert entry.size == len(store.read(f"d/{entry.name}")) == 100_000
        done.result()
    assert len(store.list("d")) == 30


def test_a_listing_is_never_remembered(place: Place) -> None:
    reader, writer = open_store(place), open_store(place)
    assert reader.list("d") == []
    writer.write("d/x", [b"1"])
    assert [entry.name for entry in reader.list("d")] == ["x"]
    writer.delete("d/x")
    assert reader.list("d") == []


def test_all_files_below_a_directory_are_walked(store: Store) -> None:
    for path in ("d/1/0/x", "d/1/y", "d/z", "dd/x"):
        store.write(path, [path.encode()])
    assert store.walk("d") == [("d/1/0/x", 7), ("d/1/y", 5), ("d/z", 3)]


def test_files_are_deleted_in_bulk_also_those_that_are_gone(store: Store) -> None:
    for n in range(5):
        store.write(f"d/{n}", [b"x"])
    store.delete_many([f"d/{n}" for n in (0, 1, 3, 7)])
    assert store.walk("d") == [("d/2", 1), ("d/4", 1)]
    store.delete_many([f"d/{n}" for n in (0, 1, 3, 7)])
    store.delete_many([])


# --- writing ----------------------------------------------------------------------------------


def pieces(seed: int, *sizes: int) -> list[bytes]:
    source = random.Random(seed)
    return [source.randbytes(size) for size in sizes]


def test_a_file_of_many_pieces_above_one_upload_part_comes_back(store: Store) -> None:
    made = pieces(1, *[3 * MIB] * 13, 0, 1)
    store.write("large", iter(made))
    assert store.read("large") == b"".join(made)
    assert bytes(store.read_range("large", 38 * MIB, 10)) == b"".join(made)[38 * MIB :][:10]


def test_a_file_without_pieces_is_empty(store: Store) -> None:
    store.write("empty", [])
    assert store.read("empty") == b""


def test_all_uploads_are_there_when_their_context_is_left(store: Store) -> None:
    made = {f"d/{n}": pieces(n, 100, n) for n in range(40)} | {"d/large": pieces(99, *[MIB] * 20)}
    with store.uploads() as uploads:
        for path, parts in made.items():
            uploads.write(path, iter(parts))
    for path, parts in made.items():
        assert store.read(path) == b"".join(parts)


def test_an_upload_whose_pieces_fail_raises_their_error(store: Store) -> None:
    def broken() -> Iterator[bytes]:
        yield b"first"
        raise ZeroDivisionError

    with pytest.raises((ZeroDivisionError, StoreFailed)), store.uploads() as uploads:
        uploads.write("d/good", [b"x"])
        uploads.write("d/broken", broken())


def test_uploads_end_with_the_first_that_fails() -> None:
    """Otherwise each of thousands of files would retry while storage is down."""
    begun: list[str] = []

    def failing(path: str, _: Any) -> None:
        begun.append(path)
        raise StoreFailed("down", path=path)

    with pytest.raises(StoreFailed), ParallelUploads(failing) as uploads:
        for number in range(1000):
            uploads.write(f"d/{number}", [b"x" * 100_000])
    assert len(begun) < 200


# --- processes --------------------------------------------------------------------------------


def use(store: Store) -> tuple[bytes, bool, list[str]]:
    won = store.create_once("child.json", b"child")
    return store.read("parent.json"), won, [entry.name for entry in store.list("")]


def in_child(task: Callable[[], Any]) -> Any:
    # A child that garbage-collects its parent's unused clients would wait for each of them.
    gc.collect()
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=lambda: theirs.send(task()))
    child.start()
    try:
        assert ours.poll(60), "the child does not answer"
        return ours.recv()
    finally:
        child.kill()
        child.join()


def test_a_store_that_was_used_works_in_a_forked_child(place: Place) -> None:
    store = open_store(place)
    assert store.create_once("parent.json", b"parent")
    answers = in_child(lambda: use(store))
    assert answers == (b"parent", True, ["child.json", "parent.json"])
    if not place.root.startswith("memory:"):
        assert store.read("child.json") == b"child"


def test_a_pickled_store_works(place: Place) -> None:
    store = open_store(place)
    store.write("parent.json", [b"parent"])
    copy = pickle.loads(pickle.dumps(store))
    assert use(copy) == (b"parent", True, ["child.json", "parent.json"])
    assert copy.url("x") == store.url("x")
