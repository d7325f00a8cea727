"""Byte ranges are fetched in order, ahead of their use within the credits, or one by one."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pytest

from ffq_spark.store import Credits, ReadTotals, Store
from ffq_spark.store.prefetch import Buffers, fetch_ahead, fetch_in_turn

Spans = Sequence[tuple[int, int]]


class Request(NamedTuple):
    """A request of some ranges of one file."""

    file: str
    spans: Spans

    @property
    def length(self) -> int:
        return sum(length for _, length in self.spans)


def whole(file: str, length: int) -> Request:
    return Request(file, [(0, length)])


class Storage:
    """Storage that counts the bytes that were requested and not yet used."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.held = self.most_held = self.at_once = self.most_at_once = 0

    def read(self, file: str, spans: Spans) -> Buffers:
        size = sum(length for _, length in spans)
        with self.lock:
            self.held += size
            self.at_once += 1
            self.most_held = max(self.most_held, self.held)
            self.most_at_once = max(self.most_at_once, self.at_once)
        time.sleep(0.001)
        with self.lock:
            self.at_once -= 1
        return [pa.py_buffer(bytes(length)) for _, length in spans]

    def used(self, size: int) -> None:
        with self.lock:
            self.held -= size


@pytest.mark.parametrize("total", [1, 10, 64, 10_000])
def test_storage_is_never_asked_for_more_than_the_credits_allow(total: int) -> None:
    storage, totals = Storage(), ReadTotals()
    wanted = [whole("f", (7 * n) % 23) for n in range(300)]
    answered = []
    for request, buffers in fetch_ahead(storage.read, wanted, totals, Credits(total)):
        assert buffers is not None and [len(buffer) for buffer in buffers] == [request.length]
        answered.append(request)
        storage.used(request.length)
    assert answered == wanted
    largest = max(request.length for request in wanted)
    assert storage.most_held <= max(total, largest)
    assert totals.peak_bytes <= max(total, largest)
    assert totals.requests == len(wanted)
    assert totals.bytes == sum(request.length for request in wanted)
    assert storage.most_at_once > 1 or total == 1


def test_one_after_the_other_holds_one_answer() -> None:
    storage, totals = Storage(), ReadTotals()
    requests = [whole("f", size) for size in (5, 9, 2)]
    for request, _ in fetch_in_turn(storage.read, requests, totals):
        storage.used(request.length)
    assert (storage.most_held, totals.peak_bytes, totals.bytes) == (9, 9, 16)


@pytest.mark.parametrize("total", [1, 1000])
def test_an_error_comes_up_where_its_answer_would_have(total: int) -> None:
    def read(file: str, spans: Spans) -> Buffers:
        if file == "5":
            raise ValueError("the fifth")
        return []

    answered = []
    requests = [whole(str(number), 1) for number in range(10)]
    with pytest.raises(ValueError, match="the fifth"):
        for request, _ in fetch_ahead(read, requests, ReadTotals(), Credits(total)):
            answered.append(request.file)
    assert answered == ["0", "1", "2", "3", "4"]


def test_a_reader_that_stops_early_asks_for_nothing_more() -> None:
    asked = []

    def read(file: str, spans: Spans) -> Buffers:
        asked.append(file)
        time.sleep(0.01)
        return []

    requests = [whole(str(number), 1) for number in range(1000)]
    ahead = fetch_ahead(read, requests, ReadTotals(), Credits(1000), threads=2)
    request, _ = next(ahead)
    assert request.file == "0"
    started = time.monotonic()
    ahead.close()  # type: ignore[attr-defined]
    assert time.monotonic() - started < 1
    time.sleep(0.1)
    assert len(asked) < 20


def test_several_ranges_of_a_file_are_one_answer_and_a_missing_file_is_none() -> None:
    store, totals = Store("memory://prefetch-ranges"), ReadTotals()
    store.write("a", [b"0123456789"])
    requests = [Request("a", [(1, 2), (8, 5)]), whole("b", 3)]
    (_, first), (_, second) = store.fetch(requests, Credits(100), totals)
    assert first is not None and [bytes(buffer) for buffer in first] == [b"12", b"89"]
    assert second is None
    assert (totals.requests, totals.bytes) == (3, 10)
