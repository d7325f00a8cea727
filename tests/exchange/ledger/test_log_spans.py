"""Spans of the step log cover every wanted step with few files."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffq_spark.exchange.ledger.log_spans import Span, cover, ending_at

pytestmark = pytest.mark.usefixtures("small_checkpoints")


@given(st.integers(1, 300), st.integers(0, 300))
def test_spans_hold_all_wanted_steps_and_few_others(first: int, more: int) -> None:
    last = first + more
    spans = list(cover(first, last))
    assert spans[0].first <= first and spans[-1].last == last
    assert all(before.last + 1 == after.first for before, after in pairwise(spans))
    assert all(span.last % span.size == 0 for span in spans)
    assert sum(span.size for span in spans) < 2 * (more + 1)


def test_a_reader_opens_few_files_however_long_the_log_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for last in (100, 4095, 10_000, 262_143, 1_000_000):
        sizes = [span.size for span in cover(1, last)]
        assert sizes.count(1) < 64
        assert all(sizes.count(size) < 8 or size == max(sizes) for size in set(sizes) - {1})


@given(st.integers(1, 10_000))
def test_a_step_completes_the_checkpoints_that_end_at_it(last: int) -> None:
    spans = ending_at(last)
    assert [span.last for span in spans] == [last] * len(spans)
    assert bool(spans) == (last % 4 == 0)
    assert all(after.size == 2 * before.size for before, after in pairwise(spans))


@given(st.integers(2, 10), st.integers(1, 100), st.integers(0, 1 << 10))
def test_smaller_spans_hold_the_wanted_steps_of_a_larger_one(
    power: int, number: int, skipped: int
) -> None:
    span = Span(1 << power, number << power)
    first = span.first + skipped % span.size
    smaller = list(span.smaller(first))
    assert smaller[0].first <= first and smaller[-1].last == span.last
    assert all(before.last + 1 == after.first for before, after in pairwise(smaller))
    assert all(piece.size < span.size for piece in smaller)
