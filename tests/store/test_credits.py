"""Byte credits limit the bytes that a reader has requested, and never block it for good."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from ffq_spark.store.credits import Credits

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
            # A refused charge is granted when everything owed has been repaid.
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
