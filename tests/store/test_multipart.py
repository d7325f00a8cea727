"""Large uploads have parts and bounded memory, and leave nothing behind when they fail."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Place
from s3proxy import Fault, S3Proxy, on

from ffq_spark.errors import StoreFailed
from ffq_spark.store import Leftover, Store
from ffq_spark.store import multipart as multipart_module
from ffq_spark.store import remote as remote_module
from ffq_spark.store.multipart import BLOCKS_AT_ONCE, blocks, chained, upload

MIB = 1 << 20
SMALL = 5 * MIB


@pytest.fixture
def store(proxied: Place) -> Store:
    return Store(proxied.root, proxied.storage_options)


def body_of(seed: int, size: int) -> list[bytes]:
    source = random.Random(seed)
    return [source.randbytes(MIB) for _ in range(size // MIB)] + [source.randbytes(size % MIB)]


def unfinished(store: Store) -> int:
    """Count the unfinished uploads below this root."""
    return len(list(leftovers(store)))


def leftovers(store: Store) -> Iterator[Leftover]:
    return store.leftovers(int(time.time() * 1000) + 86_400_000)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the smallest parts that S3 accepts, for the same requests with fewer bytes."""
    monkeypatch.setattr(remote_module, "PART_BYTES", SMALL)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("kind", ["500", "503", "drop", "reset", "lost"])
@pytest.mark.parametrize("operation", ["PART", "COMPLETE"])
def test_each_request_of_an_upload_is_retried_alone(
    store: Store, proxy: S3Proxy, operation: str, kind: str
) -> None:
    pieces = body_of(1, 2 * SMALL + 7)
    with proxy.faults(Fault(kind, on(operation), count=2)):
        store.write("shuffle/f", pieces)
    assert proxy.struck() == {kind: 2}
    assert store.read("shuffle/f") == b"".join(pieces)
    counts = proxy.counts()
    expected = {"PART": 3, "COMPLETE": 1}
    expected[operation] += 2
    # If a completion finds no upload, the store checks whether the object exists.
    if (operation, kind) == ("COMPLETE", "lost"):
        assert counts["COMPLETE"] in (2, 3)
        expected["COMPLETE"] = counts["COMPLETE"]
    assert {name: counts[name] for name in expected} == expected
    assert unfinished(store) == 0


@pytest.mark.usefixtures("small_parts")
def test_an_upload_whose_part_fails_for_good_leaves_nothing(proxied: Place, proxy: S3Proxy) -> None:
    config = {"config_kwargs": {"retries": {"total_max_attempts": 3}}}
    store = Store(proxied.root, {**proxied.storage_options, **config})
    with (
        proxy.faults(Fault("503", lambda request: "partNumber=2" in request.query)),
        pytest.raises(StoreFailed, match="gave up after 3 tries"),
    ):
        store.write("shuffle/f", body_of(2, 5 * SMALL))
    assert proxy.counts()["ABORT"] == 1 and "COMPLETE" not in proxy.counts()
    assert proxy.struck() == {"503": 3}
    assert unfinished(store) == 0 and store.read_optional("shuffle/f") is None


def test_an_upload_whose_pieces_fail_leaves_nothing(store: Store, proxy: S3Proxy) -> None:
    def broken() -> Iterator[bytes]:
        yield from body_of(3, 50 * MIB)
        raise ZeroDivisionError

    with pytest.raises(StoreFailed, match="ZeroDivisionError"):
        store.write("shuffle/f", broken())
    assert proxy.counts()["ABORT"] == 1
    assert unfinished(store) == 0 and store.read_optional("shuffle/f") is None


@pytest.mark.usefixtures("small_parts")
def test_a_completion_that_never_happened_is_no_success(store: Store, proxy: S3Proxy) -> None:
    """The upload was aborted by another process, so the object does not exist."""

    def given_up() -> Iterator[bytes]:
        yield from body_of(4, 3 * SMALL)
        for leftover in leftovers(store):
            store.delete_leftover(leftover)
        yield b"the last part"

    with pytest.raises(StoreFailed):
        store.write("shuffle/f", given_up())
    assert "CREATE_UPLOAD" in proxy.counts()
    assert store.read_optional("shuffle/f") is None


def test_blocks_hold_all_bytes_in_order() -> None:
    for seed in range(50):
        source = random.Random(seed)
        pieces = [source.randbytes(source.randrange(9)) for _ in range(source.randrange(9))]
        size = source.randrange(1, 12)
        made = [bytes(block) for block in blocks(pieces, size)]
        assert b"".join(made) == b"".join(pieces)
        assert all(len(block) == size for block in made[:-1]) and all(made)


def test_at_most_four_parts_are_in_flight_and_five_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """The generator makes another part only when one of the four is uploaded."""
    lock, alive, in_flight = threading.Lock(), [0, 0], [0, 0]

    def count(place: list[int], change: int) -> None:
        with lock:
            place[0] += change
            place[1] = max(place)

    class Part(bytearray):
        def __del__(self) -> None:
            count(alive, -1)

    def parts() -> Iterator[bytearray]:
        for _ in range(30):
            count(alive, 1)
            yield Part(b"x")

    def call(method: str, **request: Any) -> dict[str, Any]:
        if method == "upload_part":
            count(in_flight, 1)
            time.sleep(0.01)
            count(in_flight, -1)
        return {"UploadId": "u", "ETag": "e"}

    upload(call, {"Bucket": "b", "Key": "k"}, parts())
    assert in_flight == [0, multipart_module._PARTS_IN_FLIGHT]
    assert alive[1] <= multipart_module._PARTS_IN_FLIGHT + 2


def test_a_part_of_a_large_file_is_dropped_once_it_is_sent() -> None:
    head = [bytearray(b"x") for _ in range(BLOCKS_AT_ONCE)]
    left = [len(head) for _ in chained(head, [bytearray(b"y")])]
    assert left == [*reversed(range(BLOCKS_AT_ONCE)), 0]
