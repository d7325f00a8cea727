"""Byte credits bound what a reader has asked for, and never stop it for good."""

from __future__ import annotations

import threading
import time
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffq_spark.store.credits import Credits
from ffq_spark.store.prefetch import ReadTotals, fetch_ahead, fetch_in_turn

sizes = st.lists(st.integers(1, 60), max_size=60)


@given(st.integers(1, 50), sizes)
def test_no_order_of_charges_and_payments_owes_too_much(total: int, wanted: list[int]) -> None:
    credits, owed = Credits(total), deque[int]()
    pending = deque(wanted)
    while pending or owed:
        if pending and credits.charge(pending[0]):
            owed.append(pending.popleft())
            assert sum(owed) <= total or len(owed) == 1
        else:
            # Whatever is refused is granted once all that is owed has been repaid.
            assert owed
            credits.repay(owed.popleft())
    assert credits.peak <= max([total, *wanted])


def test_what_is_repaid_is_free_again_by_halves() -> None:
    credits = Credits(100)
    assert all(credits.charge(10) for _ in range(10))
    for _ in range(4):
        credits.repay(10)
        assert not credits.charge(10)
    credits.repay(10)
    assert all(credits.charge(10) for _ in range(5))
    assert not credits.charge(10)
    assert credits.peak == 100


def test_a_charge_above_the_whole_allowance_is_granted_alone() -> None:
    credits = Credits(100)
    assert credits.charge(1)
    assert not credits.charge(101)
    credits.repay(1)
    assert credits.charge(101)
    assert not credits.charge(1)
    credits.repay(101)
    assert credits.charge(100)


# --- fetching under credits -------------------------------------------------------------------


class Storage:
    """Answers requests, and knows how much was asked of it and not yet used."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.held = self.most_held = self.at_once = self.most_at_once = 0

    def fetch(self, size: int) -> bytes:
        with self.lock:
            self.held += size
            self.at_once += 1
            self.most_held = max(self.most_held, self.held)
            self.most_at_once = max(self.most_at_once, self.at_once)
        time.sleep(0.001)
        with self.lock:
            self.at_once -= 1
        return bytes(size)

    def used(self, size: int) -> None:
        with self.lock:
            self.held -= size


@pytest.mark.parametrize("total", [1, 10, 64, 10_000])
def test_storage_is_never_asked_for_more_than_the_credits_allow(total: int) -> None:
    storage, totals = Storage(), ReadTotals()
    wanted = [(7 * n) % 23 for n in range(300)]
    found = []
    for size, answer in fetch_ahead(storage.fetch, wanted, int, totals, Credits(total)):
        assert len(answer) == size
        found.append(size)
        storage.used(size)
    assert found == wanted
    assert storage.most_held <= max(total, max(wanted))
    assert totals.peak_bytes <= max(total, max(wanted))
    assert (totals.requests, totals.bytes) == (len(wanted), sum(wanted))
    assert storage.most_at_once > 1 or total == 1


def test_one_after_the_other_holds_one_answer() -> None:
    storage, totals = Storage(), ReadTotals()
    for size, _ in fetch_in_turn(storage.fetch, [5, 9, 2], int, totals):
        storage.used(size)
    assert (storage.most_held, totals.peak_bytes, totals.bytes) == (9, 9, 16)


@pytest.mark.parametrize("total", [1, 1000])
def test_an_error_comes_up_where_its_answer_would_have(total: int) -> None:
    def fetch(number: int) -> int:
        if number == 5:
            raise ValueError("the fifth")
        return number

    found = []
    with pytest.raises(ValueError, match="the fifth"):
        for _, answer in fetch_ahead(fetch, range(10), lambda _: 1, ReadTotals(), Credits(total)):
            found.append(answer)
    assert found == [0, 1, 2, 3, 4]


def test_a_reader_that_stops_early_asks_for_nothing_more() -> None:
    asked = []

    def fetch(number: int) -> int:
        asked.append(number)
        time.sleep(0.01)
        return number

    ahead = fetch_ahead(fetch, range(1000), lambda _: 1, ReadTotals(), Credits(1000), threads=2)
    assert next(ahead) == (0, 0)
    started = time.monotonic()
    ahead.close()
    assert time.monotonic() - started < 1
    time.sleep(0.1)
    assert len(asked) < 20
