"""Query numbers ascend in time and fit into 63 bits."""

from __future__ import annotations

import pytest

from ffq_spark.format import ids


def test_a_query_number_holds_its_time() -> None:
    before = ids.now_ms()
    query = ids.new_query()
    assert before <= ids.query_time_ms(query) <= ids.now_ms()
    assert 0 < query < 1 << 63


def test_numbers_of_later_milliseconds_are_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([1_700_000_000_000, 1_700_000_000_001, (1 << 42) - 1])
    monkeypatch.setattr(ids, "now_ms", lambda: next(moments))
    numbers = [ids.new_query() for _ in range(3)]
    assert numbers == sorted(numbers)
    assert numbers[-1] < 1 << 63


def test_numbers_of_one_millisecond_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "now_ms", lambda: 1_700_000_000_000)
    # Numbers have 21 random bits, so a few of many may be equal.
    assert len({ids.new_query() for _ in range(100)}) > 90
